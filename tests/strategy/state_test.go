package strategy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is every object of a cluster, as text, by "kind namespace/name".
type state map[string]string

// passing are the kinds that are left out: a lease is renewed by its holder,
// EndpointSlices cover Endpoints, and a ComponentStatus is not an object.
var passing = map[string]bool{"leases": true, "endpoints": true, "componentstatuses": true}

// snapshot reads every object that the API server serves.
func (w *world) snapshot(ctx context.Context) (state, error) {
	lists, err := w.fleet.Cluster.Client().Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	out := state{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if passing[r.Name] || !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") {
				continue
			}
			objects, err := w.fleet.Cluster.Dynamic().Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", r.Name, err)
			}
			for _, o := range objects.Items {
				text, err := plain(o)
				if err != nil {
					return nil, err
				}
				if text != "" {
					out[fmt.Sprintf("%s %s/%s", r.Kind, o.GetNamespace(), o.GetName())] = text
				}
			}
		}
	}
	return out, nil
}

// plain is an object without what changes when nothing does: its version, who
// manages its fields, the statuses that Kubernetes' controllers keep, and of a
// Node what its kubelet and the node controller write. Empty is an Event that a
// part of Kubernetes itself wrote.
func plain(o unstructured.Unstructured) (string, error) {
	if o.GetKind() == "Event" && foreignEvent(o) {
		return "", nil
	}
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	if o.GetKind() != "Node" {
		delete(o.Object, "status")
	} else {
		o.SetGeneration(0)
		keep(o, isManagedCondition, "status", "conditions")
		keep(o, isLastingTaint, "spec", "taints")
	}
	text, err := json.Marshal(o.Object)
	return string(text), err
}

// foreignEvent reports whether an Event comes from Kubernetes: the scheduler, the kubelet or a
// controller. No component of the project has such a name.
func foreignEvent(o unstructured.Unstructured) bool {
	for _, path := range [][]string{{"source", "component"}, {"deprecatedSource", "component"}, {"reportingComponent"}, {"reportingController"}} {
		name, _, _ := unstructured.NestedString(o.Object, path...)
		if name == "kubelet" || name == "default-scheduler" || name == "kwok" || strings.HasSuffix(name, "-controller") {
			return true
		}
	}
	return false
}

// keep leaves in a list of objects those that pass.
func keep(o unstructured.Unstructured, pass func(map[string]any) bool, path ...string) {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	list = slices.DeleteFunc(list, func(item any) bool {
		m, ok := item.(map[string]any)
		return ok && !pass(m)
	})
	if len(list) == 0 {
		unstructured.RemoveNestedField(o.Object, path...)
		return
	}
	_ = unstructured.SetNestedSlice(o.Object, list, path...) // the Node is an object, and has the path
}

// isManagedCondition passes what neither the kubelet nor a fence has written.
func isManagedCondition(c map[string]any) bool {
	kind, _ := c["type"].(string)
	kubelets := []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
	return !slices.Contains(kubelets, kind) && !strings.HasPrefix(kind, fence)
}

// isLastingTaint passes what the node controller does not set by the kubelet's
// heartbeat.
func isLastingTaint(t map[string]any) bool {
	key, _ := t["key"].(string)
	return key == corev1.TaintNodeUnschedulable || !strings.HasPrefix(key, "node.kubernetes.io/")
}

// calm is the state once nothing moves by itself any more: two looks, a while
// apart, that see the same.
func (w *world) calm() state {
	w.t.Helper()
	var last state
	same := 0
	w.until("the cluster to be calm", func(ctx context.Context) error {
		now, err := w.snapshot(ctx)
		if err != nil {
			return err
		}
		moved := changed(last, now)
		last = now
		if len(moved) > 0 {
			same = 0
			return fmt.Errorf("%d objects moved: %s", len(moved), strings.Join(moved[:min(3, len(moved))], ", "))
		}
		if same++; same < 5 {
			return fmt.Errorf("calm for %d looks", same)
		}
		return nil
	})
	return last
}

// changed lists the objects that came, went or differ.
func changed(before, after state) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(before)) {
		switch now, there := after[key]; {
		case !there:
			out = append(out, "- "+key)
		case now != before[key]:
			out = append(out, "~ "+key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, there := before[key]; !there {
			out = append(out, "+ "+key)
		}
	}
	return out
}

// kinds are the kinds of what changed, with what happened to them.
func kinds(changes []string) map[string]bool {
	out := map[string]bool{}
	for _, c := range changes {
		words := strings.Fields(c)
		out[words[0]+" "+words[1]] = true
	}
	return out
}
