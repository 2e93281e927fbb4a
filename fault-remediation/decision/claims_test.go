package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
)

// TestOrphans: a claim whose object is missing at every look for as long as patience.
func TestOrphans(t *testing.T) {
	type look struct {
		after   time.Duration
		claimed string // uid
		exists  bool
	}
	orphan := []string{"n1"}
	for name, tt := range map[string]struct {
		looks []look
		want  []string // at the last one
	}{
		"seen once":            {[]look{{0, "u1", false}}, nil},
		"seen too short":       {[]look{{0, "u1", false}, {time.Minute - 1, "u1", false}}, nil},
		"seen long enough":     {[]look{{0, "u1", false}, {time.Minute, "u1", false}}, orphan},
		"seen at three looks":  {[]look{{0, "u1", false}, {time.Second, "u1", false}, {time.Minute, "u1", false}}, orphan},
		"another claim":        {[]look{{0, "u1", false}, {time.Minute, "u2", false}}, nil},
		"there meanwhile":      {[]look{{0, "u1", false}, {time.Second, "u1", true}, {time.Minute, "u1", false}}, nil},
		"there":                {[]look{{0, "u1", false}, {time.Minute, "u1", true}}, nil},
		"a clock set back":     {[]look{{time.Hour, "u1", false}, {0, "u1", false}, {time.Minute - 1, "u1", false}}, nil},
		"long after it was":    {[]look{{time.Hour, "u1", false}, {0, "u1", false}, {time.Minute, "u1", false}}, orphan},
		"set back to the same": {[]look{{time.Hour, "u1", false}, {time.Hour, "u1", false}, {time.Hour + time.Minute, "u1", false}}, orphan},
	} {
		t.Run(name, func(t *testing.T) {
			var c decision.Claims
			var got []string
			for _, l := range tt.looks {
				got = c.Orphans(map[string]string{"n1": l.claimed}, map[string]bool{l.claimed: l.exists}, time.Unix(0, 0).Add(l.after), time.Minute)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSameRepair: whatever an object is made of makes it another one, but its ordinal.
func TestSameRepair(t *testing.T) {
	base := record.Attempt{
		Ordinal: 1, Group: "restart", Action: record.ActionRestartVM, Session: "s", Machine: "m", Kind: "RebootNode", Namespace: "n", PriorBootID: "b1",
	}
	for name, tt := range map[string]struct {
		change func(*record.Attempt)
		want   bool
	}{
		"the same":          {func(*record.Attempt) {}, true},
		"another ordinal":   {func(a *record.Attempt) { a.Ordinal = 2 }, true},
		"an unknown boot":   {func(a *record.Attempt) { a.PriorBootID = "" }, true},
		"another boot":      {func(a *record.Attempt) { a.PriorBootID = "b2" }, false},
		"another group":     {func(a *record.Attempt) { a.Group = "x" }, false},
		"another action":    {func(a *record.Attempt) { a.Action = record.ActionRestartBM }, false},
		"another session":   {func(a *record.Attempt) { a.Session = "x" }, false},
		"another machine":   {func(a *record.Attempt) { a.Machine = "x" }, false},
		"another kind":      {func(a *record.Attempt) { a.Kind = "x" }, false},
		"a chain":           {func(a *record.Attempt) { a.Chain = "x" }, false},
		"another namespace": {func(a *record.Attempt) { a.Namespace = "x" }, false},
	} {
		other := base
		tt.change(&other)
		if decision.SameRepair(base, other) != tt.want || decision.SameRepair(other, base) != tt.want {
			t.Errorf("%s: the same repair, want %t", name, tt.want)
		}
	}
}

// TestElapsed: a beginning ahead of the clock by more than the period is of a clock that
// was set right since.
func TestElapsed(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Hour, 0: 0, time.Minute: -time.Minute, time.Minute + 1: time.Minute + 1,
	} {
		if got := decision.Elapsed(time.Unix(0, 0), time.Unix(0, 0).Add(ahead), time.Minute); got != want {
			t.Errorf("begun %s ahead: %s, want %s", ahead, got, want)
		}
	}
}
