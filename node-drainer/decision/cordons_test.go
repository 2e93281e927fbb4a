package decision_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

func TestStandsBack(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(nodes int, age time.Duration) map[string]decision.Unmarked {
		out := map[string]decision.Unmarked{}
		for i := range nodes {
			out[fmt.Sprint("f", i)] = decision.Unmarked{Node: fmt.Sprint("n", i), Since: now.Add(-age)}
		}
		return out
	}
	noisy := map[string]decision.Unmarked{}
	for i := range 64 {
		noisy[fmt.Sprint("f", i)] = decision.Unmarked{Node: "noisy", Since: now}
	}
	for name, tt := range map[string]struct {
		unmarked map[string]decision.Unmarked
		waited   time.Duration
		want     bool
	}{
		"nothing":                                  {nil, 0, false},
		"three others":                             {of(4, 0), 0, false}, // n0 is the node itself
		"four others":                              {of(5, 0), 0, true},
		"five hundred others":                      {of(500, 0), 0, true},
		"a node that reports without end":          {noisy, 0, false},
		"they are almost too old":                  {of(5, 20*time.Second-1), 0, true},
		"they are too old to be judged":            {of(5, 20*time.Second), 0, false},
		"their clock is ahead":                     {of(5, -time.Hour), 0, true},
		"it has stood back for almost long enough": {of(5, 0), 10*time.Second - 1, true},
		"it has stood back for long enough":        {of(5, 0), 10 * time.Second, false},
		"the clock was reset":                      {of(5, 0), -1, false},
	} {
		if got := decision.StandsBack("n0", decision.Fresh(tt.unmarked, now), now.Add(-tt.waited), now); got != tt.want {
			t.Errorf("%s: stands back %t, want %t", name, got, tt.want)
		}
	}
}
