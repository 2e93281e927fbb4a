package decision_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// ruleEvent is an event of the rule's check, by the analyzer or a monitor.
func ruleEvent(id string, at int64, agent string, strategy record.Strategy) record.Record {
	return record.Record{ID: id, Append: at, Event: record.Event{
		Agent: agent, CheckName: "c", NodeName: "n", ErrorCode: []string{"31"}, ProcessingStrategy: strategy,
		GeneratedTimestamp: time.Unix(at, 0), Metadata: map[string]string{"sources": "s", "clear": string(rule.WhenSourcesClose)},
	}}
}

// TestPersistOnlyRecoveryEndsNoProcessFault: a rule's faults were
// PROCESS, and its newer ones, with their recoveries, are for the record only.
func TestPersistOnlyRecoveryEndsNoProcessFault(t *testing.T) {
	for _, tt := range []struct {
		fault, recovery record.Strategy
		open            bool
	}{
		{record.Process, record.PersistOnly, true},
		{record.Process, record.Process, false},
		{record.PersistOnly, record.PersistOnly, false},
		{record.PersistOnly, record.Process, false},
	} {
		w := decision.NewWindow(nil)
		recovery := ruleEvent("r", 2, record.AnalyzerAgent, tt.recovery)
		recovery.Event.IsHealthy = true
		w.Add(decision.NewFact(ruleEvent("f", 1, record.AnalyzerAgent, tt.fault)))
		w.Add(decision.NewFact(recovery))
		if open := len(w.Unknown()) > 0; open != tt.open {
			t.Errorf("a %s fault after a %s recovery is open: %v", tt.fault, tt.recovery, open)
		}
	}
}

// TestPersistOnlyFaultTriggersNoEvaluation: also when it is delivered again.
func TestPersistOnlyFaultTriggersNoEvaluation(t *testing.T) {
	for strategy, want := range map[record.Strategy]bool{record.Process: true, record.PersistOnly: false} {
		if _, ok := decision.NewFact(ruleEvent("f", 1, "monitor", strategy)).Matters(); ok != want {
			t.Errorf("a %s fault matters: %v", strategy, ok)
		}
	}
}
