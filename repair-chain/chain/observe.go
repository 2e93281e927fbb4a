package chain

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// observedPath is where objects show which generation their controller has seen.
const observedPath = ".status.observedGeneration"

// Observe writes into a run what only people read of a step's object: the generation that
// its controller has seen, and the result of the template's healthRule. What was seen of an
// object that is not there any more stays.
func Observe(run *v1alpha1.RepairRun, i int, t *Template, d artifact.Decision) {
	st := &run.Status.Steps[i]
	if st.Object == nil || d.Live == nil || st.Object.UID != string(d.Live.GetUID()) {
		return
	}
	if n, ok := observed(d.Live, t.Rule); ok {
		st.Object.ObservedGeneration = n
	}
	if st.Health = nil; t.Display != nil {
		h := healthrule.Evaluate(d.Live, t.Display, nil)
		st.Health = &v1alpha1.HealthTrace{State: string(h.State), Reason: h.Reason, Message: bounded(h.Message)}
	}
}

// observed is the generation that the controller of an object has seen.
func observed(live *unstructured.Unstructured, rule *healthrule.Rule) (int64, bool) {
	path := observedPath
	if rule != nil && rule.ObservedGenerationPath != "" {
		path = rule.ObservedGenerationPath
	}
	v, err := healthrule.Lookup(live, path)
	if err != nil {
		return 0, false
	}
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}
