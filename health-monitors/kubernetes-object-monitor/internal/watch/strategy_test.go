package watch

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// TestTheFlagsStrategyReachesEveryReport: what a policy reports carries the
// monitor's strategy, or the policy's own.
func TestTheFlagsStrategyReachesEveryReport(t *testing.T) {
	for _, monitors := range []record.Strategy{record.Process, record.PersistOnly} {
		for _, own := range []record.Strategy{"", record.Process, record.PersistOnly} {
			g := &generation{Monitor: &Monitor{Strategy: monitors}}
			want := own
			if own == "" {
				want = monitors
			}
			p := &policy.Policy{Name: "P", Report: policy.Report{Strategy: own}}
			if got := g.evaluateDeleted(p, item{}, time.Unix(1, 0)).Fault.Strategy; got != want {
				t.Errorf("a monitor that says %s and a policy that says %q report %q, want %s", monitors, own, got, want)
			}
		}
	}
}
