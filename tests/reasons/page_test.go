package reasons_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/tests/reasons"
)

// TestReasonsPage compares the page with the sources, in which every reason has a meaning and
// an action.
func TestReasonsPage(t *testing.T) {
	all, err := reasons.Read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if !strings.HasSuffix(r.Meaning, ".") || !strings.HasSuffix(r.Action, ".") {
			t.Errorf("%s: %s = %q: its comment has to read \"%s: <meaning>. Action: <what to do, or none>.\"", r.File, r.Constant, r.Value, r.Constant)
		}
	}
	page := reasons.Page(all)
	if on := strings.Count(page, "\n- `"); on != len(all) || on < 300 {
		t.Errorf("%d reasons in the sources, %d on the page", len(all), on)
	}
	reference.Check(t, "docs/troubleshooting/reasons.md", page)
}
