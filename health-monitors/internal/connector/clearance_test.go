package connector_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
)

func TestClearedRecordsAreReportedUntilDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cleared")
	f := connector.FollowClearances(path)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	var failing error
	take := func(want ...string) {
		t.Helper()
		var got connector.ClearedIDs
		err := f.Take(log, func(ids connector.ClearedIDs) error { got = ids; return failing })
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" || len(want) > 0 && !errors.Is(err, failing) {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	put := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	take() // of no file
	put(`{"records":["a","b"]}`, 0o644)
	failing = errors.New("the disk is full")
	take("a", "b")
	failing = nil
	take("a", "b") // it was not dealt with
	take()
	put(`{"records":["a","b","c"]}`, 0o644)
	take("a", "b", "c")
	if logged.Len() > 0 {
		t.Error(logged.String())
	}

	// A file that is not trusted or not valid is logged once.
	for text, mode := range map[string]os.FileMode{`{"records":["a","b","d", "e"]}`: 0o666, `{"records": [] , "x`: 0o644} {
		logged.Reset()
		put(text, mode)
		take()
		take()
		if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
			t.Errorf("%s: %d warnings: %s", text, n, logged.String())
		}
	}
	f = connector.FollowClearances("")
	take()
}

// TestAFaultIsKnownByItsConfirmationToo, which its publisher never saw.
func TestAFaultIsKnownByItsConfirmationToo(t *testing.T) {
	const reported = "019a1b2c-3d4e-7f01-8234-56789abcdef0"
	confirmation, err := record.ConfirmationID(reported)
	if err != nil {
		t.Fatal(err)
	}
	for cleared, want := range map[string]bool{reported: true, confirmation: true, "another": false} {
		if got := (connector.ClearedIDs{cleared: true}).Any([]string{"no UUID", reported}); got != want {
			t.Errorf("%s: %t", cleared, got)
		}
	}
}
