package eviction

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Reasons for the extent of a fault's drain.
const (
	// SkipRequested: the health event has `drainOverrides.skip`, so no pod is evicted for it. Action: none.
	SkipRequested Reason = "SkipRequested"
	// NodeRepair: the remediation acts on the whole node, so all user pods must leave. Action: none.
	NodeRepair Reason = "NodeRepair"
	// GPURepair: the remediation resets only the GPUs that the fault names, so only the pods on them must leave.
	// Action: none.
	GPURepair Reason = "GPURepair"
	// GPUNotNamed: the event does not name its GPUs by UUID, or names other entities too, so the whole node is
	// drained. Action: none.
	GPUNotNamed Reason = "GPUNotNamed"
)

// Extent is the part of a node's pods that has to go before a repair: none,
// those that hold certain GPUs, or all. The zero Extent is none.
type Extent struct {
	wholeNode bool
	gpus      []string // UUIDs, sorted
}

// WholeNode is every pod.
func WholeNode() Extent { return Extent{wholeNode: true} }

// GPUs are the pods that hold one of these GPUs, given by their UUIDs.
func GPUs(uuids ...string) Extent {
	sorted := slices.Sorted(slices.Values(uuids))
	return Extent{gpus: slices.Compact(sorted)}
}

// IsWholeNode reports whether every pod has to go.
func (e Extent) IsWholeNode() bool { return e.wholeNode }

// IsNothing reports whether no pod has to go.
func (e Extent) IsNothing() bool { return !e.wholeNode && len(e.gpus) == 0 }

// String names the extent for people.
func (e Extent) String() string {
	switch {
	case e.wholeNode:
		return "the node"
	case len(e.gpus) == 0:
		return "nothing"
	}
	return strings.Join(e.gpus, ", ")
}

// Includes reports whether the extent takes in a pod, and why or why not. A pod for which
// this is not known is taken in: unknown is not absent.
func (e Extent) Includes(pod *corev1.Pod) (bool, Reason) {
	switch {
	case e.wholeNode:
		return true, NodeRepair
	case len(e.gpus) == 0:
		return false, SkipRequested
	}
	return holdsGPU(pod, e.gpus)
}

// ExtentOf is the extent of a fault's drain: that of the repair that follows.
func (p Policy) ExtentOf(r record.Record) (Extent, Reason) {
	if o := override(r); o.Skip && !o.Force {
		return Extent{}, SkipRequested
	}
	if !p.PartialDrain || record.RepairAction(r) != record.ActionComponentReset {
		return WholeNode(), NodeRepair
	}
	gpus := gpusOf(r.Event)
	if len(gpus) == 0 {
		return WholeNode(), GPUNotNamed
	}
	return GPUs(gpus...), GPURepair
}

func override(r record.Record) record.Override {
	if o := r.Event.DrainOverrides; o != nil {
		return *o
	}
	return record.Override{}
}

const uuidName = "GPU_UUID:"

// gpusOf are the UUIDs of the GPUs that an event is about; nil if it is about
// anything that has none.
func gpusOf(e record.Event) []string {
	var out []string
	for _, entry := range fault.Entries(e) {
		i := slices.IndexFunc(entry.Names, func(n string) bool { return len(n) > len(uuidName) && strings.HasPrefix(n, uuidName) })
		if i < 0 {
			return nil
		}
		out = append(out, strings.TrimPrefix(entry.Names[i], uuidName))
	}
	return out
}

// Demand is what one open fault asks of the pods of its node.
type Demand struct {
	Extent Extent
	// Why is the reason for the extent.
	Why Reason
	// Forced: the event asked to take the pods away at once.
	Forced bool
	// Since is when the fault was evaluated; deadlines count from it.
	Since time.Time
	// LeftAlone are the UIDs of controllers that put their pods back on the node
	// after every eviction.
	LeftAlone []string
}

// Demands are those of the session's open faults that are not repaired. Pods
// that they hold have to be gone before, and kept away until, the repair.
func (p Policy) Demands(records []record.Record, session string) []Demand {
	var out []Demand
	for _, r := range records {
		if session != "" && r.Status.Session == session && r.Status.FaultRemediated == nil && record.Open(r) && record.InQuarantine(r) {
			out = append(out, p.DemandOf(r))
		}
	}
	return out
}

// Union is everything that the demands take in together.
func Union(demands []Demand) Extent {
	var gpus []string
	for _, d := range demands {
		if d.Extent.wholeNode {
			return WholeNode()
		}
		gpus = append(gpus, d.Extent.gpus...)
	}
	return GPUs(gpus...)
}

// DemandOf is the demand of one fault.
func (p Policy) DemandOf(r record.Record) Demand {
	o := override(r)
	d := Demand{Forced: o.Force && !o.Skip, Since: since(r), LeftAlone: leftAlone(r)}
	d.Extent, d.Why = p.ExtentOf(r)
	return d
}

func leftAlone(r record.Record) []string {
	if r.Status.UserPodsEvictionStatus.LeftAlone == "" {
		return nil
	}
	return strings.Split(r.Status.UserPodsEvictionStatus.LeftAlone, ",")
}

// since is when a fault was evaluated, by the cluster's clock. The times that its
// node gave it are not believed where they would matter: a node whose clock is a
// day behind would have its pods deleted at once.
func since(r record.Record) time.Time {
	if v := r.Status.QuarantineVerdict; v != nil && !v.At.IsZero() {
		return v.At
	}
	if !r.CreatedAt.IsZero() {
		return r.CreatedAt
	}
	return r.Event.GeneratedTimestamp
}

// Reasons for a pod to be in or out of the extent of a GPU's repair.
const (
	// HoldsGPU: the annotation `dgxc.nvidia.com/devices` of the pod lists the GPU, so the pod must leave. Action:
	// none.
	HoldsGPU Reason = "HoldsGPU"
	// MayHoldGPU: the pod requests GPUs and its annotation `dgxc.nvidia.com/devices` does not show which, so the pod
	// must leave. Action: none. If it happens often, check metadata-collector on the node.
	MayHoldGPU Reason = "MayHoldGPU"
	// OtherDevices: the pod holds no GPU or only other ones, so it stays on the node. Action: none.
	OtherDevices Reason = "OtherDevices"
)

// gpuResources are how the names of resources begin that give a GPU, or a part
// of one, to a pod.
var gpuResources = []string{"nvidia.com/gpu", "nvidia.com/pgpu", "nvidia.com/mig-"}

// uuidPrefix begins the ids that can be compared with a GPU's UUID; ids of GPU
// instances ("MIG-...") do not name their GPU.
const uuidPrefix = "GPU-"

// holdsGPU reports whether a pod holds one of the GPUs, or may hold one, by the devices it was
// given.
func holdsGPU(pod *corev1.Pod, gpus []string) (bool, Reason) {
	given, ok := nodemark.Devices(pod.Annotations)
	for _, ids := range given {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(gpus, physicalGPU(id)) }) {
			return true, HoldsGPU
		}
	}
	if !ok || len(given) == 0 && len(pod.Spec.ResourceClaims) > 0 {
		return true, MayHoldGPU
	}
	for _, name := range requestedGPUs(pod) {
		if ids := given[name]; len(ids) == 0 || slices.ContainsFunc(ids, unclear) {
			return true, MayHoldGPU
		}
	}
	return false, OtherDevices
}

// physicalGPU is the UUID in the id of a shared GPU ("GPU-...::3").
func physicalGPU(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid
}

func unclear(id string) bool { return !strings.HasPrefix(id, uuidPrefix) }

// requestedGPUs are the GPU resources that the pod's containers ask for.
func requestedGPUs(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for name, quantity := range c.Resources.Limits {
				if isGPU(name) && !quantity.IsZero() {
					names = append(names, string(name))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isGPU(name corev1.ResourceName) bool { return IsGPU(string(name)) }

// IsGPU reports whether a resource of this name gives a GPU, or a part of one.
func IsGPU(resource string) bool {
	return slices.ContainsFunc(gpuResources, func(prefix string) bool { return strings.HasPrefix(resource, prefix) })
}

// Facts is the pod with what this package evaluates, its names and its labels,
// and nothing else: a cluster's pods are many, and large.
func Facts(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, Annotations: readAnnotations(pod.Annotations), OwnerReferences: controllerKind(pod),
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims,
			InitContainers: gpuContainers(pod.Spec.InitContainers), Containers: gpuContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: readiness(pod)},
	}
}

func readAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{nodemark.DevicesAnnotation, corev1.MirrorPodAnnotationKey, configSource} {
		if value, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// controllerKind keeps of the owners the controller, and of it what distinguishes it and its
// kind from others.
func controllerKind(pod *corev1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, UID: owner.UID, Controller: owner.Controller}}
	}
	return nil
}

// readiness keeps the condition Ready, without the texts that are for people.
func readiness(pod *corev1.Pod) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return out
}

// gpuContainers keeps the containers that ask for GPUs, and of them that alone.
func gpuContainers(all []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range all {
		limits := corev1.ResourceList{}
		for name, quantity := range c.Resources.Limits {
			if isGPU(name) {
				limits[name] = quantity
			}
		}
		if len(limits) > 0 {
			out = append(out, corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}})
		}
	}
	return out
}
