package triage_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// The lease of a step of a hundred years, the longest that a check may have, is a lease.
func TestLeaseOfALongStep(t *testing.T) {
	century := 876000 * time.Hour
	w := newWorld(0, nil, step(rebootKind, century), step(terminateKind, century))
	w.node("n")
	w.fall("n")
	for range 2 {
		w.pass()
		w.now = w.now.Add(time.Hour)
	}
	l, held := w.view.Leases["n"]
	if !held || l.Duration <= 0 || l.Duration/time.Second > math.MaxInt32 {
		t.Errorf("lease %+v, held %t", l, held)
	}
	if w.did != nil || w.plan.Again <= 0 {
		t.Errorf("the next pass did %q, and the one after it is due in %s", w.did, w.plan.Again)
	}
}

// What an API server answers is repeated in part, and never torn inside a letter.
func TestAnAnswerIsCut(t *testing.T) {
	long := errors.New(strings.Repeat("ä", 400))
	s, notices := triage.Undecided(v1alpha1.NodeHealthCheckStatus{}, long, testkit.Start)
	if n := len(s.Reason); n > 400 || !utf8.ValidString(s.Reason) || !strings.HasSuffix(s.Reason, " ...") || len(notices) != 1 || len(notices[0].Message) > 400 {
		t.Errorf("%d bytes: %q, %v", n, s.Reason, notices)
	}
	if s.Phase != v1alpha1.PhaseEnabled || !s.LastUpdateTime.Time.Equal(testkit.Start) {
		t.Errorf("status %+v", s)
	}
}

// An act that the end of the process cut short has not failed.
func TestAnActThatIsCutShort(t *testing.T) {
	for cut, want := range map[bool]int{true: 0, false: 1} {
		w := newWorld(0, nil)
		w.node("n")
		w.fall("n")
		plan := triage.Examine(w.view, w.now)
		status, notices := plan.Close(w.view, []triage.Outcome{{Act: plan.Acts[0], Err: errors.New("refused"), CutShort: cut}}, w.now)
		failed := 0
		for _, n := range notices {
			if n.Reason == triage.NoticeFailed {
				failed++
			}
		}
		if failed != want || strings.Contains(status.Reason, "failed") == cut || (status.UnhealthyNodes[0].Waiting == "") != cut {
			t.Errorf("cut short %t: notices %v, status %+v", cut, notices, status)
		}
	}
}

// A definition of the kind that drops unhealthyNodes[].waiting makes no write with every
// pass, and one that keeps it has it written when it changes.
func TestAStatusThatLacksTheFieldWaiting(t *testing.T) {
	of := func(reason string, waiting ...string) v1alpha1.NodeHealthCheckStatus {
		s := v1alpha1.NodeHealthCheckStatus{Reason: reason}
		for _, w := range waiting {
			s.UnhealthyNodes = append(s.UnhealthyNodes, v1alpha1.UnhealthyNode{Name: "n", Waiting: w})
		}
		return s
	}
	for name, tt := range map[string]struct {
		stored, wanted v1alpha1.NodeHealthCheckStatus
		want           bool
	}{
		"it was dropped":        {of("1 wait", ""), of("1 wait", "a lease"), false},
		"the reason changes":    {of("0 wait", ""), of("1 wait", "a lease"), true},
		"it changes":            {of("2 wait", "a lease", ""), of("2 wait", "", "a lease"), true},
		"nothing changes":       {of("1 wait", "a lease"), of("1 wait", "a lease"), false},
		"it is over":            {of("1 wait", "a lease"), of("0 wait", ""), true},
		"there is nothing more": {of("1 wait", "a lease"), of("0 wait"), true},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.wanted.DeepCopy()
			if got := triage.Changed(tt.stored, tt.wanted); got != tt.want {
				t.Errorf("worth writing: %t, want %t", got, tt.want)
			}
			if diff := cmp.Diff(*before, tt.wanted); diff != "" {
				t.Errorf("the status is changed:\n%s", diff)
			}
		})
	}
}
