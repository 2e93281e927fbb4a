package removal

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Groups of the kinds that the chart defines; the last is medik8s'.
const (
	janitorGroup = "janitor.dgxc.nvidia.com"
	suiteGroup   = "nvsentinel.dgxc.nvidia.com"
	medik8sGroup = "remediation.medik8s.io"
)

// byPeople is true for each kind of the project whose objects people write to configure
// services, and false for each kind whose objects are repairs.
var byPeople = map[string]bool{
	"RebootNode": false, "TerminateNode": false, "GPUReset": false, "RepairRun": false, "HealthEventRemediation": false,
	"RebootNodeTemplate": true, "TerminateNodeTemplate": true, "RepairTemplate": true, "RepairChain": true,
	"RepairRunTemplate": true, "HealthEventRemediationTemplate": true,
}

// Definitions is what holds CustomResourceDefinitions.
var Definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ProjectGroup reports whether a definition of the group is to be looked at.
func ProjectGroup(group, kind string) bool {
	return group == janitorGroup || group == suiteGroup || group == medik8sGroup && kind == "NodeHealthCheck"
}

// ended reports whether nothing works on a repair any more. The janitor writes a
// completion time; the other repairs end in a condition.
func ended(group string, x *unstructured.Unstructured) bool {
	if group == janitorGroup {
		at, _, _ := unstructured.NestedString(x.Object, "status", "completionTime")
		return at != ""
	}
	c, _ := healthrule.ConditionOf(x, "Succeeded")
	return c.Status == string(metav1.ConditionTrue) || c.Status == string(metav1.ConditionFalse)
}

// notEnded are the uids of the repairs that have not ended.
func notEnded(f Facts) map[string]bool {
	out := map[string]bool{}
	for _, d := range f.Definitions {
		for i := range d.Objects {
			if people, known := byPeople[d.Kind]; known && !people && !ended(d.Resource.Group, &d.Objects[i]) {
				out[string(d.Objects[i].GetUID())] = true
			}
		}
	}
	return out
}

// ofDefinitions are the items of our kinds: their objects, then they themselves.
func ofDefinitions(f Facts, o Options) (out []Item) {
	states := repairStatesOf(f.Nodes)
	for _, d := range f.Definitions {
		item := removable(CRD, d.ObjectMeta, Definitions)
		item.Note = fmt.Sprintf("%d objects", len(d.Objects))
		if d.Resource.Group == medik8sGroup {
			item.Remove, item.Reason = false, Shared
			out = append(out, item)
			continue
		}
		stay := 0
		for i := range d.Objects {
			object := ofObject(d, &d.Objects[i], states, o)
			if !object.Remove {
				stay++
			}
			out = append(out, object)
		}
		switch {
		case d.DeletionTimestamp != nil:
			item.Remove, item.Reason = false, Terminating
		case !o.Definitions:
			item.Remove, item.Reason = false, NotRequested
		case stay > 0:
			item.Remove, item.Reason, item.Note = false, ObjectsStay, fmt.Sprintf("%d of %d objects", stay, len(d.Objects))
		default:
			item.Reason = Requested
		}
		out = append(out, item)
	}
	return out
}

// repairStates is what Nodes show about repairs: the uids of those that have taken GPU
// services off and not given them back, and the sessions of nodes in quarantine.
type repairStates struct{ off, sessions map[string]bool }

func repairStatesOf(nodes []corev1.Node) repairStates {
	s := repairStates{map[string]bool{}, map[string]bool{}}
	for i := range nodes {
		m := nodemark.Read(&nodes[i])
		s.off[m.Reset], s.sessions[m.Session] = true, m.Session != ""
	}
	return s
}

// ofObject is what becomes of an object of the project.
func ofObject(d Definition, x *unstructured.Unstructured, nodes repairStates, o Options) Item {
	item := Item{
		Kind: d.Kind, Namespace: x.GetNamespace(), Name: x.GetName(),
		Target: Target{Resource: d.Resource, UID: string(x.GetUID()), Version: x.GetResourceVersion()},
	}
	for _, name := range x.GetFinalizers() {
		if domain, _, _ := strings.Cut(name, "/"); domain == janitorGroup || domain == suiteGroup {
			item.Target.Finalizers = append(item.Target.Finalizers, name)
		}
	}
	people, known := byPeople[d.Kind]
	done := ended(d.Resource.Group, x)
	switch {
	case !known:
		item.Reason = Uncertain
	case people && !o.Definitions:
		item.Reason = OfAPerson
	case nodes.off[item.Target.UID]:
		item.Reason = ServicesOff
	case !people && !done && !o.ReleaseNodes:
		item.Reason = NotEnded
	case nodes.sessions[x.GetAnnotations()[nodemark.SessionAnnotation]] && !o.ReleaseNodes:
		item.Reason = InQuarantine // a later installation needs it for the result of the repair
	case len(item.Target.Finalizers) < len(x.GetFinalizers()):
		item.Reason, item.Note = ForeignFinalizer, strings.Join(foreign(x.GetFinalizers(), item.Target.Finalizers), ", ")
	case people:
		item.Remove, item.Reason = true, Requested
	case !done:
		item.Remove, item.Reason = true, Released
	default:
		item.Remove, item.Reason = true, Managed
	}
	return item
}

func foreign(all, ours []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(ours, name) })
}
