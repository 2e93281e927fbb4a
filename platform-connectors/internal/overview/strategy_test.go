package overview

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestConditionsOfClusterWideAgentsComeFromPROCESSRecordsOnly: what was only
// observed neither rings nor is read.
func TestConditionsOfClusterWideAgentsComeFromPROCESSRecordsOnly(t *testing.T) {
	o := &Overview{Agents: []string{"csp-health-monitor"}}
	r := record.Record{Event: record.Event{NodeName: "n", Agent: "csp-health-monitor", IsFatal: true, ProcessingStrategy: record.Process}}
	for name, s := range map[string]record.Selector{"the feed": o.Selector(), "a node's records": o.of("n")} {
		r.Event.ProcessingStrategy = record.Process
		if !s.Matches(r) {
			t.Errorf("%s: a PROCESS record is left out", name)
		}
		r.Event.ProcessingStrategy = record.PersistOnly
		if s.Matches(r) {
			t.Errorf("%s: a PERSIST_ONLY record is let in", name)
		}
	}
}
