package kube

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Strip is the transform of a cache that any label or annotation may be read from: it
// drops who wrote which field of an object, and of a Node the status that no service
// reads, which is most of it. Conditions and the machine's identity stay.
func Strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status = corev1.NodeStatus{
			Conditions: node.Status.Conditions,
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID},
		}
	}
	return object, nil
}

// StripToMarks is the transform of a cache of Nodes from which nothing is read but our
// own marks, and what Strip leaves beside labels and annotations.
func StripToMarks(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.Labels, node.Annotations = ours(node.Labels), ours(node.Annotations)
		node.Spec.PodCIDRs = nil
	}
	return Strip(object)
}

// ours are the entries whose keys are below nvidia.com, as those of nodemark are, or in
// no domain, as those that fault-quarantine's annotations have kept from their beginning.
// One of the others stays where there is none: PatchNode adds to a map that is there, and
// would make one that is not.
func ours(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	out := map[string]string{}
	for key, value := range all {
		if domain, _, has := strings.Cut(key, "/"); !has || strings.HasSuffix(domain, ".nvidia.com") {
			out[key] = value
		}
	}
	if len(out) == 0 {
		least := slices.Min(slices.Collect(maps.Keys(all)))
		out[least] = all[least]
	}
	return out
}
