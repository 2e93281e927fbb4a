package strategy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryFilterHasARow: what looks like a filter on the strategy is in the table or
// excused, and each row finds its place in the source.
func TestEveryFilterHasARow(t *testing.T) {
	root, err := Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unlisted(root); err != nil {
		t.Error(err)
	}
	for _, f := range Filters() {
		text, err := os.ReadFile(filepath.Join(root, f.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), f.Old); n != 1 {
			t.Errorf("%s, %s: %q occurs %d times in %s: correct the row", f.Floor, f.What, f.Old, n, f.File)
		}
	}
}
