package cluster

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// TestConditionsOfClusterWideAgentsComeFromPROCESSRecordsOnly: what was only
// observed neither enqueues nor is read.
func TestConditionsOfClusterWideAgentsComeFromPROCESSRecordsOnly(t *testing.T) {
	o := &Conditions{Agents: []string{"csp-health-monitor"}}
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

// TestPendingEventsAreProcessFaults: of whatever the store gives.
func TestPendingEventsAreProcessFaults(t *testing.T) {
	for _, strategy := range []record.Strategy{record.Process, record.PersistOnly} {
		n := &pendingEvents{seen: map[conditions.Notice]*nodeclient.FaultEvent{}}
		n.take(record.Record{ID: "1", Append: 1, Event: record.Event{NodeName: "gpu-1", CheckName: "Disk", ProcessingStrategy: strategy}}, record.NodeIdentity{})
		if got := len(n.order) == 1; got != (strategy == record.Process) {
			t.Errorf("%s is told: %v", strategy, got)
		}
	}
}
