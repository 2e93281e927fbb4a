package strategy

import (
	"testing"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// TestEveryFilterHasARow: what looks like a filter on the strategy is in the table or
// excused, and each row finds its place in the source.
func TestEveryFilterHasARow(t *testing.T) {
	root, err := overlay.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unlisted(root); err != nil {
		t.Error(err)
	}
	for _, f := range Filters() {
		if _, err := (overlay.Edit{File: f.File, Old: f.Old, New: f.New}).Line(root); err != nil {
			t.Errorf("%s, %s: %v", f.Layer, f.Description, err)
		}
	}
}
