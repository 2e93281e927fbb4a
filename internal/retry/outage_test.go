package retry_test

import (
	"errors"
	"testing"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// TestOutageIsReportedAtStartAndEnd: once when it begins, once when it ends, and the newest
// failure is why it is not ready.
func TestOutageIsReportedAtStartAndEnd(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	var o retry.Outage
	for i, step := range []struct {
		err          error
		begins, ends bool
		why          string
	}{
		{nil, false, false, ""}, {a, true, false, "a"}, {b, false, false, "b"}, {nil, false, true, ""}, {nil, false, false, ""}, {b, true, false, "b"},
	} {
		if begins, ends := o.Note(step.err); begins != step.begins || ends != step.ends {
			t.Errorf("step %d: begins %v, ends %v", i, begins, ends)
		}
		if ready, why := o.Ready(); ready != (step.err == nil) || why != step.why {
			t.Errorf("step %d: ready %v, %q", i, ready, why)
		}
	}
}
