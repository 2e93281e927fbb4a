package sqlstore

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/wake"
)

// TestHeeds: which writes wake which feeds.
func TestHeeds(t *testing.T) {
	type feeds struct{ quarantine, drainer, remediation, causes bool }
	for name, tc := range map[string]struct {
		cause wake.Cause
		want  feeds
	}{
		"anything":   {wake.Anything, feeds{true, true, true, true}},
		"appended":   {wake.Appended, feeds{quarantine: true, causes: true}},
		"judged":     {wake.Cause{By: record.FaultQuarantine}, feeds{causes: true}},
		"quarantine": {wake.Cause{By: record.FaultQuarantine, Quarantined: record.Quarantined}, feeds{drainer: true, causes: true}},
		"drain":      {wake.Cause{By: record.NodeDrainer, Quarantined: record.Quarantined, Eviction: record.EvictionInProgress}, feeds{causes: true}},
		"drained":    {wake.Cause{By: record.NodeDrainer, Quarantined: record.Quarantined, Eviction: record.EvictionSucceeded}, feeds{remediation: true, causes: true}},
		"repaired":   {wake.Cause{By: record.FaultRemediation, Quarantined: record.Quarantined, Eviction: record.EvictionSucceeded}, feeds{drainer: true, causes: true}},
		"released":   {wake.Cause{By: record.FaultQuarantine, Quarantined: record.UnQuarantined, Eviction: record.EvictionSucceeded}, feeds{drainer: true, remediation: true, causes: true}},
	} {
		heard := wake.Parse(tc.cause.String())
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
		if got := wake.Parse(text); got != wake.Anything {
			t.Errorf("%q, of another version, is %+v", text, got)
		}
	}
}
