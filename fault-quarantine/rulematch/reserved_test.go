package rulematch_test

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// What the admission policy would refuse is refused at the start; tests/access
// compares the two on a real API server.
func TestReservedMarks(t *testing.T) {
	for name, tc := range map[string]struct {
		set  rulematch.Set
		want string
	}{
		"a label of one's own":   {rulematch.Set{Label: &record.Label{Key: "example.com/faulty", Value: "x"}}, ""},
		"the role":               {rulematch.Set{Label: &record.Label{Key: "node-role.kubernetes.io/control-plane"}}, `label.key "node-role.kubernetes.io/control-plane"`},
		"the opt-out":            {rulematch.Set{Label: &record.Label{Key: "nvsentinel.dgxc.nvidia.com/managed", Value: "false"}}, "label.key"},
		"a taint of one's own":   {rulematch.Set{Taint: &record.Taint{Key: "nvidia.com/gpu-error", Effect: "NoSchedule"}}, ""},
		"a taint of Kubernetes'": {rulematch.Set{Taint: &record.Taint{Key: "node.kubernetes.io/not-ready", Effect: "NoExecute"}}, "taint.key"},
	} {
		set := tc.set
		set.Name, set.Match = "s", rulematch.Match{Any: []rulematch.Rule{{Kind: "HealthEvent", Expression: "true"}}}
		err := rulematch.Validate([]rulematch.Set{set})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
