package record_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestFormerNamesAreRead: a stored record with the former names of an outcome and of
// reasons is read with the present ones, and one with the present names is unchanged.
func TestFormerNamesAreRead(t *testing.T) {
	const former, present = record.Outcome("NeedsHuman"), record.OutcomeNeedsHuman
	for name, tt := range map[string]struct{ stored, want record.Remediation }{
		"repeat offender": {
			record.Remediation{Outcome: former, Reason: "Lemon"},
			record.Remediation{Outcome: present, Reason: record.RepeatOffender},
		},
		"manual action": {
			record.Remediation{Outcome: former, Reason: "HumanAction"},
			record.Remediation{Outcome: present, Reason: "ManualActionRequired"},
		},
		"other outcomes": {
			record.Remediation{Outcome: record.OutcomeCanceled, Reason: "Cancel"},
			record.Remediation{Outcome: record.OutcomeCanceled, Reason: "Cancelled"},
		},
		"attempts": {
			record.Remediation{Attempts: []record.Attempt{{Reason: "Release"}, {Reason: "WaitLease"}, {Reason: "MatchedCondition"}}},
			record.Remediation{Attempts: []record.Attempt{{Reason: "ReservationReleased"}, {Reason: "AwaitingLease"}, {Reason: "MatchedCondition"}}},
		},
		"a wait": {
			record.Remediation{Waiting: &record.Wait{Reason: "WaitClaim", Message: "WaitClaim"}},
			record.Remediation{Waiting: &record.Wait{Reason: "AwaitingClaim", Message: "WaitClaim"}},
		},
		"present names": {
			record.Remediation{Outcome: present, Reason: record.RepeatOffender, Waiting: &record.Wait{Reason: "BackingOff"}},
			record.Remediation{Outcome: present, Reason: record.RepeatOffender, Waiting: &record.Wait{Reason: "BackingOff"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := json.Marshal(record.Record{ID: "r1", Status: record.Status{Remediation: &tt.stored}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := record.Decode(doc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got.Status.Remediation); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if why := record.NeedsNewer(got); why != "" {
				t.Errorf("it is left alone: %s", why)
			}
		})
	}
}
