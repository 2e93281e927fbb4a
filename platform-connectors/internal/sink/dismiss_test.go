package sink

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestMonitorsReceiveManualClearances: once each, in a file that nobody else
// may write, whatever was in it before.
func TestMonitorsReceiveManualClearances(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.sock.cleared")
	d := &Dismissals{Fold: &Fold{Log: slog.New(slog.DiscardHandler)}, Path: path}
	expect := func(want ...string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.ParseCleared(data)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || !slices.Equal(got.Records, want) || info.Mode()&0o022 != 0 {
			t.Errorf("told %v, want %v; mode %v, errors %v, %v", got.Records, want, info.Mode(), err, statErr)
		}
	}
	report := func(ids ...string) {
		t.Helper()
		if err := d.append(ids); err != nil {
			t.Fatal(err)
		}
	}
	report()
	if _, err := os.Stat(path); err == nil {
		t.Error("nothing to tell makes a file")
	}
	report("b")
	report("a", "b")
	expect("b", "a")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	report("c")
	expect("c")
	if err := (&Dismissals{Fold: d.Fold}).append([]string{"x"}); err != nil {
		t.Errorf("without a file: %v", err)
	}
}
