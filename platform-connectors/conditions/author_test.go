package conditions

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestManagedConditionsAreRecognized: every condition of a Node that is written here can be
// distinguished from those of others, whatever of its text had to be cut.
func TestManagedConditionsAreRecognized(t *testing.T) {
	long := fatal(1, strings.Repeat("GPU", MaxMessage), "79")
	long.Event.CheckName = "Long"
	many := &Set{}
	for i := range 200 {
		many.Fold(fatal(uint64(i+1), strings.Repeat("g", i+1), "79"))
	}
	mixed := &Set{}
	mixed.Fold(long)
	mixed.Fold(fatal(2, "GPU-1", "79"))
	well := healthy(3, "", "")
	well.Event.CheckName = "Well"
	mixed.Fold(well)
	seen := 0
	for _, s := range []*Set{many, mixed} {
		for _, c := range s.Desired() {
			seen++
			if got := nodemark.AuthorOf(c); got != nodemark.Connector {
				t.Errorf("%+v is of a %s", c, got)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d conditions, want 4", seen)
	}
}
