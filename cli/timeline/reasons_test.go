package timeline

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// attempted is an open fault with attempts of its repair.
func attempted(attempts ...record.Attempt) record.Record {
	return open("r", func(r *record.Record) { r.Status.Remediation = &record.Remediation{Attempts: attempts} })
}

// TestClaimant: a claim is reported unless an open fault asked for the object that
// claims, by its uid, or by its name before the uid is known.
func TestClaimant(t *testing.T) {
	object := []Object{{Kind: "RebootNode", Name: "x", UID: "u1"}}
	ended := []Object{{Kind: "RebootNode", Name: "x", UID: "u1", Completed: minute(59)}}
	over := func(name string) record.Record {
		r, at := attempted(record.Attempt{Name: name, UID: "u1"}), minute(58)
		r.Status.Faults[0].ClearedTimestamp = &at
		return r
	}
	for _, tt := range []struct {
		name    string
		claim   string
		objects []Object
		records []record.Record
		want    string
		ending  bool
	}{
		{"nothing claims", "", object, nil, "", false},
		{"nobody asked", "u1", object, nil, "RebootNode/x, which no open fault requested", false},
		{"asked for by uid", "u1", object, []record.Record{attempted(record.Attempt{Name: "x", UID: "u1"})}, "", false},
		{"asked for by name", "u1", object, []record.Record{attempted(record.Attempt{Name: "x"})}, "", false},
		{"another was asked for", "u1", object, []record.Record{attempted(record.Attempt{Name: "y", UID: "u2"})}, "RebootNode/x, which no open fault requested", false},
		{"an object that is not there was asked for", "u1", nil, []record.Record{attempted(record.Attempt{Name: "x", UID: "u1"})}, "", false},
		{"an attempt has no name yet, and the object is not there", "u1", nil, []record.Record{attempted(record.Attempt{})}, "the maintenance object with uid u1, which no open fault requested", false},
		{"an attempt has a name, and the object is not there", "u1", nil, []record.Record{attempted(record.Attempt{Name: "x"})}, "the maintenance object with uid u1, which no open fault requested", false},
		{"the fault that asked is over", "u1", object, []record.Record{over("x")}, "RebootNode/x, which has not ended yet although the fault that requested it has", true},
		{"so is the object", "u1", ended, []record.Record{over("x")}, "RebootNode/x, which no open fault requested", false},
		{"the object is not there", "u1", nil, []record.Record{over("x")}, "the maintenance object with uid u1, which no open fault requested", false},
	} {
		f := Facts{Store: Source{Read: true}, Sighting: &Node{Claim: tt.claim}, Objects: tt.objects, Records: tt.records}
		if got, ending := claimant(f); got != tt.want || ending != tt.ending {
			t.Errorf("%s: %q (ending %t), want %q", tt.name, got, ending, tt.want)
		}
	}
}

// TestWhyAConditionStands although no fault of its check is open: because of the
// newest fault that acts.
func TestWhyAConditionStands(t *testing.T) {
	evaluated := func(reason record.Reason, edits ...func(*record.Record)) record.Record {
		r := open("r", edits...)
		r.Status.QuarantineVerdict.Reason = reason
		return r
	}
	cleared := func(ago time.Duration, by string) record.Record {
		return open("r", func(r *record.Record) {
			at := minute(60).Add(-ago)
			r.Status.Faults[0].ClearedTimestamp, r.Status.Faults[0].ClearedBy = &at, by
		})
	}
	skipped := evaluated(record.Skipped)
	healthy := func(r *record.Record) { r.Event.IsHealthy = true }
	observed := func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }
	another := func(r *record.Record) { r.Event.CheckName = "another" }
	unjudged := func(r *record.Record) { r.Status.QuarantineVerdict = nil }
	const waits = "not evaluated by fault-quarantine yet"
	for _, tt := range []struct {
		name    string
		records []record.Record
		want    string
		settled bool
	}{
		{"no fault", nil, unexplained, false},
		{"a fault was skipped", []record.Record{skipped}, "Skipped", true},
		{"a recovery after it", []record.Record{skipped, evaluated(record.NoRuleMatched, healthy)}, "Skipped", true},
		{"a fault for the record only after it", []record.Record{skipped, evaluated(record.NoRuleMatched, observed)}, "Skipped", true},
		{"a fault of another check after it", []record.Record{skipped, evaluated(record.NoRuleMatched, another)}, "Skipped", true},
		{"another fault after it", []record.Record{skipped, evaluated(record.NoRuleMatched)}, "NoRuleMatched", true},
		{"a dry run", []record.Record{evaluated(record.DryRun)}, "DryRun", true},
		{"the Node opts out", []record.Record{evaluated(record.OptedOut)}, "OptedOut", true},
		{"a boot that is over", []record.Record{evaluated(record.CoveredByReboot)}, "CoveredByReboot", false},
		{"it is held", []record.Record{evaluated(record.Held)}, "Held", false},
		{"a dry run, then it is held", []record.Record{evaluated(record.DryRun), evaluated(record.Held)}, "Held", false},
		{"a fault waits, and one after it is judged", []record.Record{open("r", unjudged), skipped}, waits, false},
		{"the recovery was stored just now", []record.Record{cleared(0, "h")}, conditionPendingText, false},
		{"the recovery was stored a moment less than a minute ago", []record.Record{cleared(time.Minute-1, "h")}, conditionPendingText, false},
		{"the recovery was stored a minute ago", []record.Record{cleared(time.Minute, "h")}, unexplained, false},
		{"a person released the node", []record.Record{cleared(0, record.ClearedManual)}, "the node was released manually", true},
		{"an entry is not cleared", []record.Record{open("r")}, unexplained, false},
	} {
		got := unacted([]Condition{{Type: "check"}}, Facts{Records: tt.records, Now: minute(60)})
		for why := range got {
			if len(got) != 1 || !strings.Contains(why.text, tt.want) || why.settled != tt.settled {
				t.Errorf("%s: %+v, want %q, settled %t", tt.name, why, tt.want, tt.settled)
			}
		}
	}
	// What was not read is not called absent.
	for why := range unacted([]Condition{{Type: "check"}}, Facts{Older: true}) {
		if why != (standingFor{text: unread}) {
			t.Errorf("with records that were not read: %+v", why)
		}
	}
}

// TestRefusedBy: only what was looked at and not accepted is refused.
func TestRefusedBy(t *testing.T) {
	for status, want := range map[metav1.ConditionStatus]bool{"": false, metav1.ConditionTrue: false, metav1.ConditionUnknown: false, metav1.ConditionFalse: true} {
		conditions := []metav1.Condition{{Type: "Accepted", Status: status, Message: "m"}}
		if status == "" {
			conditions = nil
		}
		r, refused := RefusedBy("RepairTemplate", "t", conditions)
		if refused != want || want && r != (Refused{"RepairTemplate", "t", "m"}) {
			t.Errorf("accepted %q is refused: %v, %+v", status, refused, r)
		}
	}
}

// TestTheVerdictNamesItsRules, if it has any.
func TestTheVerdictNamesItsRules(t *testing.T) {
	for want, rules := range map[string][]string{`Matched`: nil, `Matched by rule "a"`: {"a"}, `Matched by rule "a", "b"`: {"a", "b"}} {
		r := open("r", func(r *record.Record) {
			r.Status.QuarantineVerdict.RuleSets, r.Status.QuarantineVerdict.Effects = rules, record.Effects{}
		})
		if got := newBuilder(Facts{}).verdict(r)[0].Text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTheEndOfAFault: each clearing is shown once, and the node is released by a recovery
// that released it in the same session.
func TestTheEndOfAFault(t *testing.T) {
	at := minute(5)
	cleared := open("r", func(r *record.Record) {
		r.Status.Faults = []record.Fault{{Key: "a", ClearedTimestamp: &at, ClearedBy: "h"}, {Key: "b", ClearedTimestamp: &at, ClearedBy: "h"}}
	})
	for _, tt := range []struct {
		name     string
		released record.Quarantine
		session  string
		want     string
	}{
		{"the recovery released the node", record.UnQuarantined, "s", "2 of 2 faults, no fault left, the node is released"},
		{"another fault of the session is left", record.NotQuarantined, "s", "2 of 2 faults"},
		{"the recovery released a later stay", record.UnQuarantined, "s9", "2 of 2 faults"},
	} {
		recovery := open("h", func(r *record.Record) {
			r.Event.IsHealthy, r.Status.NodeQuarantined, r.Status.Session = true, tt.released, tt.session
		})
		steps := newBuilder(Facts{Records: []record.Record{cleared, recovery}}).end(cleared)
		if len(steps) != 2 || steps[0].Kind != Recovery || steps[1].Text != tt.want {
			t.Errorf("%s: %+v, want one recovery and %q", tt.name, steps, tt.want)
		}
	}
}

// TestAStepThatFailedAlerts.
func TestAStepThatFailedAlerts(t *testing.T) {
	steps := stepsOf(record.Attempt{Steps: []record.RepairStep{{Name: "a", State: "Failed"}, {Name: "b", State: "Done"}}})
	if len(steps) != 2 || steps[0].Mood != Alert || steps[1].Mood != Plain {
		t.Errorf("a failed step and one that is done are %+v", steps)
	}
}
