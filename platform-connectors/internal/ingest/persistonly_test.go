package ingest

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestAgentsWhoseEveryEventIsPersistOnlyAreNamed: one PROCESS event, first or
// last, is enough to be heard.
func TestAgentsWhoseEveryEventIsPersistOnlyAreNamed(t *testing.T) {
	var d persistOnly
	for _, output := range []struct {
		agent    string
		strategy record.Strategy
	}{
		{"of the predecessor", record.PersistOnly}, {"of the predecessor", record.PersistOnly},
		{"acting", record.Process}, {"acting", record.PersistOnly}, {"one policy of many", record.PersistOnly}, {"one policy of many", record.Process},
	} {
		d.hear(record.Event{Agent: output.agent, ProcessingStrategy: output.strategy})
	}
	if got := named(t, &d); len(got) != 1 || got[0] != "of the predecessor" {
		t.Errorf("agents %q", got)
	}
	for i := range 2 * maxHeard {
		d.hear(record.Event{Agent: fmt.Sprint(i), ProcessingStrategy: record.PersistOnly})
	}
	if n := len(named(t, &d)); n > maxHeard {
		t.Errorf("%d agents are told apart, want %d at most", n, maxHeard)
	}
}

// named are the agents that the metric names.
func named(t *testing.T, d *persistOnly) (out []string) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(d)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "nvsentinel_connector_persist_only_agents" || m.GetGauge().GetValue() != 1 {
				t.Errorf("%s is %v", f.GetName(), m)
			}
			out = append(out, m.GetLabel()[0].GetValue())
		}
	}
	return out
}
