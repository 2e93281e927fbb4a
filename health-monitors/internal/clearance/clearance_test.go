package clearance_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/internal/clearance"
)

func TestClearedRecordsAreToldUntilDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cleared")
	f := clearance.Follow(path)
	read := func(want ...string) {
		t.Helper()
		got, err := f.Read()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" || err != nil {
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
	read() // of no file
	put(`{"records":["a","b"]}`, 0o644)
	read("a", "b")
	read("a", "b") // not dealt with yet
	f.Done()
	read()
	put(`{"records":["a","b","c"]}`, 0o644)
	read("a", "b", "c")
	f.Done()

	// Not believed: said once.
	for text, mode := range map[string]os.FileMode{`{"records":["a","b","d", "e"]}`: 0o666, `{"records": [] , "x`: 0o644} {
		put(text, mode)
		if got, err := f.Read(); err == nil || len(got) != 0 {
			t.Errorf("%s told %v, error %v", text, got, err)
		}
		read()
	}
	if got, err := clearance.Follow("").Read(); err != nil || got != nil {
		t.Errorf("no file told %v, error %v", got, err)
	}
}
