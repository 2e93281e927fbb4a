package storetest

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Hearing hears every log line and error of a test, and looks for secrets in
// them.
type Hearing struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write hears a line.
func (h *Hearing) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

// Logger logs everything to the hearing.
func (h *Hearing) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Error hears an error.
func (h *Hearing) Error(err error) {
	if err != nil {
		_, _ = h.Write([]byte(err.Error() + "\n")) // a buffer takes everything
	}
}

// Silent fails the test if any of the secrets was heard, as it is or as an
// address writes it.
func (h *Hearing) Silent(t testing.TB, secrets ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := h.text.String()
	if heard == "" {
		t.Error("nothing was heard, so that the silence means nothing")
	}
	for _, s := range secrets {
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(url.QueryEscape(s), "+", "%20")} {
			for line := range strings.Lines(heard) {
				if strings.Contains(line, form) {
					t.Errorf("the password was told: %s", line)
				}
			}
		}
	}
}

// DSN is a way to name a store, and whether it opens.
type DSN struct {
	Name    string
	Address string
	// Opens reports whether the store opens; then a record is kept in it.
	Opens bool
}

// Try opens the store by each name, and captures all log output and errors. Those that must not
// open get some seconds to fail, together.
func Try(t *testing.T, h *Hearing, dsns ...DSN) {
	t.Helper()
	var closed sync.WaitGroup
	defer closed.Wait()
	for _, d := range dsns {
		if d.Opens {
			d.try(t, h, waitTimeout)
		} else {
			closed.Go(func() { d.try(t, h, 3*time.Second) })
		}
	}
}

func (d DSN) try(t *testing.T, h *Hearing, wait time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	s, err := storeopen.Open(ctx, d.Address, storeopen.Options{Logger: h.Logger()})
	h.Error(err)
	if (err == nil) != d.Opens {
		t.Errorf("%s: opens: %v, want %v: %v", d.Name, err == nil, d.Opens, err)
	}
	if err != nil {
		return
	}
	keep(t, s)
	if err := s.Close(); err != nil {
		t.Errorf("%s: %v", d.Name, err)
	}
}

// keep stores a record and feeds it.
func keep(t *testing.T, s store.Store) {
	t.Helper()
	r := Record("n")
	MustAppend(t, s, r)
	f := openFeed(t, s, r.ID, record.AllHealthEventInserts())
	for {
		if got := Receive(t, f, 1)[0]; got.ID == r.ID {
			return
		}
	}
}

// Files writes files into a folder of the test and returns their paths by name.
func Files(t testing.TB, files map[string][]byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	out := map[string]string{}
	for name, text := range files {
		out[name] = filepath.Join(dir, name)
		if err := os.WriteFile(out[name], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
