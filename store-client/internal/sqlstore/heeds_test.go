package sqlstore

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestHeeds: which writes wake which feeds.
func TestHeeds(t *testing.T) {
	type feeds struct{ quarantine, drainer, remediation, causes bool }
	for name, tc := range map[string]struct {
		cause Cause
		want  feeds
	}{
		"anything":   {Anything, feeds{true, true, true, true}},
		"appended":   {Appended, feeds{quarantine: true, causes: true}},
		"judged":     {Cause{By: record.FaultQuarantine}, feeds{causes: true}},
		"quarantine": {Cause{By: record.FaultQuarantine, Quarantined: record.Quarantined}, feeds{drainer: true, causes: true}},
		"drain":      {Cause{By: record.NodeDrainer, Quarantined: record.Quarantined, Eviction: record.EvictionInProgress}, feeds{causes: true}},
		"drained":    {Cause{By: record.NodeDrainer, Quarantined: record.Quarantined, Eviction: record.EvictionSucceeded}, feeds{remediation: true, causes: true}},
		"repaired":   {Cause{By: record.FaultRemediation, Quarantined: record.Quarantined, Eviction: record.EvictionSucceeded}, feeds{drainer: true, causes: true}},
		"released":   {Cause{By: record.FaultQuarantine, Quarantined: record.UnQuarantined, Eviction: record.EvictionSucceeded}, feeds{drainer: true, remediation: true, causes: true}},
	} {
		heard := ParseCause(tc.cause.String())
		got := feeds{
			newFeed(&Store{}, "fault-quarantine", record.ProcessableHealthEventInserts()).heeds(heard),
			newFeed(&Store{}, "node-drainer", record.NodeQuarantineStatus()).heeds(heard),
			newFeed(&Store{}, "fault-remediation", record.QuarantinedAndDrainedNodes()).heeds(heard),
			newFeed(&Store{}, "health-events-analyzer-causes", record.AnalyzerCauses()).heeds(heard),
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	for _, text := range []string{"x", "fault-quarantine/Quarantined", "a/b/c/d"} {
		if got := ParseCause(text); got != Anything {
			t.Errorf("%q, of another version, is %+v", text, got)
		}
	}
}
