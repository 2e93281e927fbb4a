package record_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// twins are records in every state that a selector of a service may ask for. As
// PERSIST_ONLY ones they never come to be; a filter must hold all the same.
func twins(strategy record.Strategy) []record.Record {
	var out []record.Record
	for _, healthy := range []bool{false, true} {
		for _, verdict := range []record.Reason{"", record.Held, record.Matched} {
			for _, quarantined := range []record.Quarantine{"", record.Quarantined, record.UnQuarantined} {
				for _, eviction := range []record.Eviction{"", record.EvictionSucceeded} {
					r := record.Record{Event: record.Event{NodeName: "n", ProcessingStrategy: strategy, IsHealthy: healthy}}
					r.Status.NodeQuarantined, r.Status.UserPodsEvictionStatus.Status = quarantined, eviction
					if verdict != "" {
						r.Status.QuarantineVerdict = &record.Verdict{Reason: verdict}
					}
					out = append(out, r)
				}
			}
		}
	}
	return out
}

func count(s record.Selector, records []record.Record) (n int) {
	for _, r := range records {
		if s.Matches(r) {
			n++
		}
	}
	return n
}

// TestEveryNamedSelectorFiltersPersistOnly: each selects records of every kind
// it is for, and not one PERSIST_ONLY record; the exporter's selects both.
func TestEveryNamedSelectorFiltersPersistOnly(t *testing.T) {
	for _, s := range []record.Selector{
		record.ProcessableHealthEventInserts(), record.ProcessableNonFatalUnhealthyInserts(), record.NodeQuarantineStatus(),
		record.QuarantinedAndDrainedNodes(), record.BacklogOfNode("n"), record.OpenOfNode("n"),
		record.AnalyzerCauses(),
	} {
		t.Run(s.Name, func(t *testing.T) {
			if n := count(s, twins(record.Process)); n == 0 {
				t.Error("it selects no PROCESS record")
			}
			if n := count(s, twins(record.PersistOnly)); n != 0 {
				t.Errorf("it selects %d PERSIST_ONLY records", n)
			}
		})
	}
	both := append(twins(record.Process), twins(record.PersistOnly)...)
	if n := count(record.AllHealthEventInserts(), both); n != len(both) {
		t.Errorf("the exporter's selector selects %d of %d records", n, len(both))
	}
}

// TestActingKeepsPROCESSRecordsInTheirOrder: and changes nothing it was given.
func TestActingKeepsPROCESSRecordsInTheirOrder(t *testing.T) {
	of := func(id string, s record.Strategy) record.Record {
		return record.Record{ID: id, Event: record.Event{ProcessingStrategy: s}}
	}
	mixed := []record.Record{of("1", record.Process), of("2", record.PersistOnly), of("3", record.Process), of("4", "")}
	if diff := cmp.Diff([]record.Record{mixed[0], mixed[2]}, record.Acting(mixed)); diff != "" {
		t.Errorf("acting (-want +got):\n%s", diff)
	}
	if mixed[1].ID != "2" || mixed[3].ID != "4" {
		t.Error("the list that was given is changed")
	}
	if got := record.Acting(mixed[:1]); len(got) != 1 || len(record.Acting(nil)) != 0 {
		t.Errorf("acting: %v", got)
	}
}
