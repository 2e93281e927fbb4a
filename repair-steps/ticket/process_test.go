package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// binary builds the program, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ticket-")
	if err != nil {
		return "", err
	}
	return testkit.Binary(dir, ".")
})

// desk is a ticket system: it makes one ticket for each key, and records its calls.
type desk struct {
	mu       sync.Mutex
	requests int
	tickets  map[string]string          // bodies by keys
	before   func(asked int) (code int) // what it answers instead, 0: takes it
	after    func(asked int)            // when the ticket exists and nothing is answered yet
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	if d.before != nil {
		if code := d.before(d.requests); code != 0 {
			w.WriteHeader(code)
			fmt.Fprint(w, "not now, token=hunter2")
			return
		}
	}
	key := r.Header.Get("Idempotency-Key")
	if d.tickets == nil {
		d.tickets = map[string]string{}
	}
	if _, ok := d.tickets[key]; !ok {
		d.tickets[key] = string(body)
	}
	if d.after != nil {
		d.after(d.requests)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"ticket": "OPS-7"}`)
}

const facts = `{"node":"gpu-1","run":"gpu-1-abc","action":"RESTART_VM","fault":{"message":"say \"79\"\n"},"steps":{"validate":"Failed"},"validation":"Failed","logs":"https://logs.example.com/x"}`

// command is one run with the facts above.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer, word string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	word = filepath.Join(dir, "termination-log")
	if err := errors.Join(os.WriteFile(word, nil, 0o600), os.WriteFile(filepath.Join(dir, "facts"), []byte(facts), 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), path, append([]string{"--facts=" + filepath.Join(dir, "facts"), "--termination-log=" + word}, args...)...)
	out = &bytes.Buffer{}
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"TICKET_KEY=gpu-1-abc/ticket"}, out, out
	return cmd, out, word
}

func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	end, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return end.ExitCode()
}

// TestCommandLine: the help is printed, and an error names the flag that is wrong.
func TestCommandLine(t *testing.T) {
	for message, x := range map[string]struct {
		args []string
		code int
	}{
		"--idempotency-header\n":     {[]string{"--help"}, 0},
		"ticket ":                    {[]string{"--version"}, 0},
		"--url":                      {nil, 2},
		"-ulr":                       {[]string{"--ulr=x"}, 2},
		"--on-conflict":              {[]string{"--url=https://example.com", "--on-conflict=x"}, 2},
		"--template":                 {[]string{"--url=https://example.com", "--template=/nowhere"}, 1},
		"the configuration is valid": {[]string{"--url=https://example.com", "--check-config"}, 0},
	} {
		cmd, out, _ := command(t, x.args...)
		if got := code(t, cmd.Run()); got != x.code || !strings.Contains(out.String(), message) {
			t.Errorf("%v: exit code %d, want %d and %q in:\n%s", x.args, got, x.code, message, out)
		}
	}
}

// one checks that there is exactly one ticket, with all that was known.
func (d *desk) one(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var body struct {
		Summary, Node, Validation, Logs string
		Fault                           struct{ Message string }
	}
	text := d.tickets["gpu-1-abc/ticket"]
	if err := json.Unmarshal([]byte(text), &body); err != nil || len(d.tickets) != 1 || body.Node != "gpu-1" || body.Fault.Message != "say \"79\"\n" || body.Validation != "Failed" || body.Logs == "" {
		t.Errorf("%v, %v", d.tickets, err)
	}
}

// TestTheAnswerIsCutOff: the ticket exists, and its repetition makes no other.
func TestTheAnswerIsCutOff(t *testing.T) {
	d := &desk{after: func(asked int) {
		if asked == 1 {
			panic(http.ErrAbortHandler)
		}
	}}
	s := httptest.NewServer(d)
	defer s.Close()
	cmd, out, word := command(t, "--url="+s.URL)
	if got := code(t, cmd.Run()); got != 0 || d.requests != 2 || !strings.Contains(out.String(), "OPS-7") {
		t.Errorf("exit code %d after %d requests:\n%s", got, d.requests, out)
	}
	d.one(t)
	if text, err := os.ReadFile(word); err != nil || string(text) != `HTTP 201 Created: {"ticket": "OPS-7"}` {
		t.Errorf("last word %q, %v", text, err)
	}
}

// TestKilledBeforeTheAnswer: a pod that is made again makes no other ticket.
func TestKilledBeforeTheAnswer(t *testing.T) {
	var first *exec.Cmd
	d := &desk{after: func(asked int) {
		if asked == 1 {
			_ = first.Process.Kill()
			panic(http.ErrAbortHandler)
		}
	}}
	s := httptest.NewServer(d)
	defer s.Close()
	d.mu.Lock() // the handler waits until there is a process
	first, _, _ = command(t, "--url="+s.URL)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	d.mu.Unlock()
	if got := code(t, first.Wait()); got != -1 {
		t.Fatalf("exit code %d, and it should have been killed", got)
	}
	second, out, _ := command(t, "--url="+s.URL)
	if got := code(t, second.Run()); got != 0 || d.requests != 2 {
		t.Errorf("exit code %d after %d requests:\n%s", got, d.requests, out)
	}
	d.one(t)
}

// TestRefused: a refused request is sent once, and the step fails with the reason, without secrets.
func TestRefused(t *testing.T) {
	d := &desk{before: func(int) int { return http.StatusForbidden }}
	s := httptest.NewServer(d)
	defer s.Close()
	cmd, out, word := command(t, "--url="+s.URL)
	if got := code(t, cmd.Run()); got != 1 || d.requests != 1 || strings.Contains(out.String(), "hunter2") {
		t.Errorf("exit code %d after %d requests:\n%s", got, d.requests, out)
	}
	if text, err := os.ReadFile(word); err != nil || !strings.Contains(string(text), "rejected: HTTP 403 Forbidden: not now, token=[redacted]") {
		t.Errorf("last word %q, %v", text, err)
	}
}
