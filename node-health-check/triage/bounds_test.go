package triage_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if n := len(s.Reason); n > 400 || !utf8.ValidString(s.Reason) || !strings.HasSuffix(s.Reason, " ...") || len(notices) != 1 || !notices[0].Warning || len(notices[0].Message) > 400 {
		t.Errorf("%d bytes: %q, %v", n, s.Reason, notices)
	}
	if s.Phase != v1alpha1.PhaseEnabled || !s.LastUpdateTime.Time.Equal(testkit.Start) {
		t.Errorf("status %+v", s)
	}
	for n, whole := range map[int]bool{299: true, 300: true, 301: false} {
		text := strings.Repeat("a", n)
		s, _ := triage.Undecided(v1alpha1.NodeHealthCheckStatus{}, errors.New(text), testkit.Start)
		if strings.HasSuffix(s.Reason, ": "+text) != whole || strings.HasSuffix(s.Reason, " ...") == whole {
			t.Errorf("an answer of %d bytes is repeated as %q", n, s.Reason)
		}
	}
}

// A remediation that was there already, of a pass that ended before it was recorded, is
// recorded, and no Event reports that it was created.
func TestARemediationThatWasThere(t *testing.T) {
	for found, want := range map[bool]int{true: 0, false: 1} {
		w := newWorld(0, nil)
		w.node("n")
		w.fall("n")
		plan := triage.Examine(w.view, w.now)
		o := triage.Outcome{Act: plan.Acts[0], Made: w.act(plan.Acts[0]), Found: found}
		status, notices := plan.Close(w.view, []triage.Outcome{o}, w.now)
		created := 0
		for _, n := range notices {
			if n.Reason == triage.NoticeCreated {
				created++
			}
		}
		if recorded := status.UnhealthyNodes[0].Remediations; created != want || len(recorded) != 1 || string(recorded[0].Resource.UID) != o.Made.UID {
			t.Errorf("found %t: %d Events of it, recorded %+v", found, created, recorded)
		}
	}
}

// A check whose budget cannot be read begins nothing, and reports which field is wrong. Another
// problem, which was found before, is the one that it names.
func TestABudgetThatCannotBeRead(t *testing.T) {
	missing := &triage.Problem{Reason: v1alpha1.ReasonTemplateNotFound, Message: "there is no template"}
	for want, problem := range map[string]*triage.Problem{
		"SpecInvalid: spec.minHealthy": nil, "RemediationTemplateNotFound: there is no template": missing,
	} {
		w := newWorld(0, nil)
		w.node("n")
		w.fall("n")
		w.view.Check.Spec.MinHealthy, w.view.Problem = amount("many"), problem
		w.pass()
		if s := w.view.Check.Status; len(w.did) > 0 || s.Phase != v1alpha1.PhaseDisabled || !strings.Contains(s.Reason, want) {
			t.Errorf("did %q, %s: %s; want %s", w.did, s.Phase, s.Reason, want)
		}
	}
}

// What the API server rejects of several nodes is counted and reported as one reason, and
// each node keeps its own words. What has no reason in common is counted by its words.
func TestNotStartedRemediations(t *testing.T) {
	for name, tt := range map[string]struct {
		hold    triage.Blocker
		skipped []string
		reason  string
		events  int
	}{
		"refused":       {triage.BlockerRefused, []string{"quota of a", "quota of b"}, ", 2 pending: " + string(triage.BlockerRefused), 1},
		"a lease taken": {"", []string{string(triage.BlockerLease), string(triage.BlockerLease)}, ", 2 pending: " + string(triage.BlockerLease), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0, nil)
			for _, node := range []string{"a", "b"} {
				w.node(node)
				w.fall(node)
			}
			plan := triage.Examine(w.view, w.now)
			var outcomes []triage.Outcome
			for i, a := range plan.Acts {
				outcomes = append(outcomes, triage.Outcome{Act: a, Skipped: tt.skipped[i], Blocker: tt.hold})
			}
			status, notices := plan.Close(w.view, outcomes, w.now)
			events := 0
			for _, n := range notices {
				if n.Reason == triage.NoticeSkipped && n.Warning {
					events++
				}
			}
			if !strings.HasSuffix(status.Reason, tt.reason) || events != tt.events {
				t.Errorf("%d Events, %q; want %d, %q", events, status.Reason, tt.events, tt.reason)
			}
			for i, u := range status.UnhealthyNodes {
				if u.Waiting != tt.skipped[i] {
					t.Errorf("node %s waits: %s; want %s", u.Name, u.Waiting, tt.skipped[i])
				}
			}
		})
	}
}

// A node that is deleted, or no longer selected, while a kind of its remediations cannot be
// read: the status keeps what nobody knows the end of, beside what is there.
func TestUnreadableForeignRemediation(t *testing.T) {
	reboot := triage.Remediation{Kind: rebootKind, Name: "n", UID: "reboot", Node: "n", Owned: true, Created: testkit.Start}
	terminate := triage.Remediation{Kind: terminateKind, Name: "n", UID: "terminate", Node: "n", Owned: true, Created: testkit.Start}
	for name, tt := range map[string]struct {
		recorded, there []triage.Remediation
		unread          bool
		want            string
	}{
		"it may be there":              {[]triage.Remediation{reboot}, nil, true, "reboot"},
		"it may be, beside a new one":  {[]triage.Remediation{reboot}, []triage.Remediation{terminate}, true, "reboot terminate"},
		"it is gone":                   {[]triage.Remediation{reboot}, nil, false, ""},
		"it is gone, a new one is not": {[]triage.Remediation{reboot}, []triage.Remediation{terminate}, false, "terminate"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0, nil)
			w.stick = true
			entry := v1alpha1.UnhealthyNode{Name: "n"}
			for _, r := range tt.recorded {
				entry.Remediations = append(entry.Remediations, r.Record())
			}
			w.view.Check.Status.UnhealthyNodes = []v1alpha1.UnhealthyNode{entry}
			w.view.Remediations = tt.there
			w.view.Unread = map[schemaKind]bool{rebootKind: tt.unread}
			w.pass()
			var got []string
			for _, u := range w.view.Check.Status.UnhealthyNodes {
				for _, r := range u.Remediations {
					got = append(got, string(r.Resource.UID))
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("recorded %q, want %q", got, tt.want)
			}
		})
	}
}

// The condition Disabled reports why the check does nothing, or what it fails to do.
func TestTheConditionDisabled(t *testing.T) {
	const failed = "the check is operational, but some actions fail: removing a remediation failed for 1 nodes and is retried (node n: refused)"
	missing := &triage.Problem{Reason: v1alpha1.ReasonTemplateNotFound, Message: "there is no template"}
	for name, tt := range map[string]struct {
		problem *triage.Problem
		fails   bool
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"it works":                  {nil, false, metav1.ConditionFalse, v1alpha1.ReasonEnabled, "the check is operational"},
		"an act fails":              {nil, true, metav1.ConditionFalse, v1alpha1.ReasonEnabled, failed},
		"disabled":                  {missing, false, metav1.ConditionTrue, v1alpha1.ReasonTemplateNotFound, "there is no template"},
		"disabled and an act fails": {missing, true, metav1.ConditionTrue, v1alpha1.ReasonTemplateNotFound, "there is no template"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0, nil)
			w.node("n")
			w.fall("n")
			w.pass()
			w.recover("n")
			w.view.Problem, w.fail = tt.problem, map[triage.Verb]bool{triage.Remove: tt.fails}
			w.pass()
			c := meta.FindStatusCondition(w.view.Check.Status.Conditions, v1alpha1.ConditionDisabled)
			if c == nil || c.Status != tt.status || c.Reason != tt.reason || c.Message != tt.message {
				t.Errorf("condition %+v; want %s, %s: %s", c, tt.status, tt.reason, tt.message)
			}
		})
	}
}

// The name of a node and a digest that just fit into a name stand there whole.
func TestANameThatJustFits(t *testing.T) {
	s := step(rebootKind, 0)
	s.Multiple = true
	for n, whole := range map[int]bool{244: true, 245: false} {
		node := strings.Repeat("n", n)
		if name := s.Name(node); strings.HasPrefix(name, node+"-") != whole || len(name) > 253 {
			t.Errorf("the name for a node of %d letters is %s, of %d", n, name, len(name))
		}
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
