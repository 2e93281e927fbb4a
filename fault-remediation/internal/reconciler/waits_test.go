package reconciler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
)

// waiting returns the wait that a record reports for its repair; nil if it reports none.
func (b *bench) waiting(id string) *record.Wait {
	b.t.Helper()
	if rem := b.record(id).Status.Remediation; rem != nil {
		return rem.Waiting
	}
	return nil
}

// TestAFaultWithoutARepair: it is reported once when it begins to wait for its recovery, and
// a person is asked once when that does not come within a day.
func TestAFaultWithoutARepair(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionNone)
	b.parks(decision.NoRepair)
	b.parks(decision.NoRepair)
	if w := b.waiting("r1"); w == nil || w.Reason != string(decision.NoRepair) || w.Until == nil || w.Until.Sub(w.Since) != 24*time.Hour {
		t.Errorf("the record says that it waits for %+v", w)
	}
	if got := b.events(); len(got) != 1 || !strings.HasPrefix(got[0], reconciler.EventNoRepair+" x1: no remediation is configured for this fault (action NONE)") || !strings.Contains(got[0], "(record r1)") {
		t.Errorf("events %q, want one that tells of r1", got)
	}
	b.clock.Step(24*time.Hour + time.Second)
	b.settles()
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(NoRepair) label=remediation-failed")
	if got := b.events(); len(got) != 2 || !strings.HasPrefix(got[0], reconciler.EventNeedsHuman+" x1: NoRepair: ") {
		t.Errorf("events %q, want one more that asks a person", got)
	}
}

// TestACreationThatIsForbidden, by a right that is missing or by a policy, is reported in the
// record; what follows when it lasts is in the script cannot_begin.
func TestACreationThatIsForbidden(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	whole := b.Cluster
	b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/rebootnodes") {
			return answer(r, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"a policy says no","code":403}`), nil
		}
		return nil, nil
	})
	b.parks(decision.CreateForbidden)
	if w := b.waiting("r1"); w == nil || w.Reason != string(decision.CreateForbidden) || !strings.Contains(w.Message, "a policy says no") {
		t.Errorf("the record says that it waits for %+v", w)
	}
	b.clock.Step(10 * time.Minute)
	b.parks(decision.CreateForbidden)
	b.Cluster = whole
	b.parks(decision.WaitObject)
	if w := b.waiting("r1"); w != nil {
		t.Errorf("the record still says that it waits for %+v", w)
	}
}
