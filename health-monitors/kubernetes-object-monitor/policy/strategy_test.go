package policy

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestAPolicysOwnStrategyComesBeforeTheMonitors: the monitor's holds if a policy sets none.
func TestAPolicysOwnStrategyComesBeforeTheMonitors(t *testing.T) {
	for text, want := range map[string]map[record.Strategy]record.Strategy{
		"": {record.Process: record.Process, record.PersistOnly: record.PersistOnly},
		"processingStrategy = \"PERSIST_ONLY\"\n": {record.Process: record.PersistOnly, record.PersistOnly: record.PersistOnly},
		"processingStrategy = \"PROCESS\"\n":      {record.Process: record.Process, record.PersistOnly: record.Process},
	} {
		set, err := Parse("policies.toml", one("true")+text, objects{})
		if err != nil {
			t.Fatal(err)
		}
		for monitors, strategy := range want {
			if got := set.Policies[0].Report.StrategyOr(monitors); got != strategy {
				t.Errorf("policy %q of a monitor that says %s reports %s, want %s", text, monitors, got, strategy)
			}
		}
	}
}
