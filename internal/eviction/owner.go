package eviction

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// LeaveAlone leaves the pods on their node, as those of DaemonSets. Only owner rules
// have this mode.
const LeaveAlone Mode = "LeaveAlone"

// Reasons that follow from the controller that owns a pod.
const (
	// OwnerKind: the rule for the kind of the pod's owner (`ownerKinds` or a default) gives its mode. Action: none.
	OwnerKind Reason = "OwnerKind"
	// PerNodeController: the mode of the kind of the pod's owner is LeaveAlone, so the pod stays on the node. Action:
	// none.
	PerNodeController Reason = "PerNodeController"
)

// OwnerRule gives the pods of one kind of controller their mode.
type OwnerRule struct {
	// Kind is the kind of the controller that owns the pods, alone or with its API
	// group: "StatefulSet", "NodeSet.slinky.slurm.net".
	Kind string `toml:"kind"`
	// Mode is one of Modes, or LeaveAlone.
	Mode Mode `toml:"mode"`
}

// OwnerModes lists every mode that an owner rule can have.
func OwnerModes() []Mode { return append(Modes(), LeaveAlone) }

// DefaultOwners are the rules for kinds that the configuration does not name. Of the
// controllers whose pods never complete, they name those whose pods an eviction cannot
// cost a training run: another pod takes their place, or a disruption budget of the
// controller guards those that are busy.
func DefaultOwners() []OwnerRule {
	return []OwnerRule{
		{Kind: "NodeSet.slinky.slurm.net", Mode: Immediate},
		{Kind: "ReplicaSet.apps", Mode: Immediate},
		{Kind: "ReplicationController", Mode: Immediate},
		{Kind: "CloneSet.apps.kruise.io", Mode: Immediate},
		{Kind: "ExtendedDaemonSetReplicaSet.datadoghq.com", Mode: LeaveAlone},
	}
}

// endless are the kinds whose pods never complete: their controllers replace each pod
// that ends.
var endless = []string{
	"NodeSet.slinky.slurm.net", "ReplicaSet.apps", "ReplicationController", "StatefulSet", "CloneSet.apps.kruise.io",
}

// workloads are further kinds whose controllers place pods by number, or run them to
// their end. None of them has a pod on every node.
var workloads = []string{
	"Job", "JobSet", "RayCluster", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob",
	"LeaderWorkerSet", "PodClique", "Workflow", "AppWrapper", "SparkApplication", "Notebook",
}

// NeverCompletes reports whether a pod's controller replaces it whenever it ends, so that
// waiting for its completion has no end.
func NeverCompletes(pod *corev1.Pod) bool { return ownedByOneOf(pod, endless) }

// MayBePerNode reports whether the controller of a pod may be one that keeps a pod on every
// node. It is not for a pod that holds GPUs, for a bare pod, or for the kinds that are
// known to run workloads.
func MayBePerNode(pod *corev1.Pod) bool {
	given, _ := nodemark.Devices(pod.Annotations)
	return Owner(pod) != "" && len(given) == 0 && len(requestedGPUs(pod)) == 0 && len(pod.Spec.ResourceClaims) == 0 &&
		!ownedByOneOf(pod, endless) && !ownedByOneOf(pod, workloads)
}

// Owner is the UID of the controller that owns a pod, or empty.
func Owner(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// OwnerKindOf is the kind of the controller that owns a pod, or empty.
func OwnerKindOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.Kind
	}
	return ""
}

func ownedByOneOf(pod *corev1.Pod, kinds []string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && slices.ContainsFunc(kinds, func(kind string) bool { return isKind(owner, kind) })
}

// isKind compares an owner with a kind that is written alone or with its API group.
func isKind(owner *metav1.OwnerReference, written string) bool {
	kind, group, grouped := strings.Cut(written, ".")
	if owner.Kind != kind || !grouped {
		return owner.Kind == kind
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == group
}

// ownerRule is the rule for the owner of a pod, the configured ones first.
func (p Policy) ownerRule(pod *corev1.Pod) (OwnerRule, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return OwnerRule{}, false
	}
	i := slices.IndexFunc(p.owners, func(r OwnerRule) bool { return isKind(owner, r.Kind) })
	if i < 0 {
		return OwnerRule{}, false
	}
	return p.owners[i], true
}

func (p Policy) leavesAlone(pod *corev1.Pod) bool {
	rule, ok := p.ownerRule(pod)
	return ok && rule.Mode == LeaveAlone
}

// modeOfPod is the mode of a pod's namespace. Where that is AllowCompletion, and no rule
// names the namespace more closely than "*", the owner's kind decides.
func (p Policy) modeOfPod(pod *corev1.Pod) (Mode, Reason) {
	mode, why := p.ModeOf(pod.Namespace)
	if mode != AllowCompletion || why != MatchedByNoRule && why != MatchedByAll {
		return mode, why
	}
	if rule, ok := p.ownerRule(pod); ok {
		return rule.Mode, OwnerKind
	}
	return mode, why
}

var kindForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)

func checkOwners(rules []OwnerRule) []error {
	var problems []error
	first := map[string]int{}
	for i, r := range rules {
		if !kindForm.MatchString(r.Kind) {
			problems = append(problems, fmt.Errorf(
				"ownerKinds[%d].kind: %q is not a kind, alone or with its API group, as \"NodeSet.slinky.slurm.net\"", i, r.Kind))
		}
		if !slices.Contains(OwnerModes(), r.Mode) {
			problems = append(problems, fmt.Errorf("ownerKinds[%d].mode: %q is not one of %v", i, r.Mode, OwnerModes()))
		}
		if before, again := first[r.Kind]; again {
			problems = append(problems, fmt.Errorf("ownerKinds[%d].kind: %q is already named by ownerKinds[%d]",
				i, r.Kind, before))
		} else {
			first[r.Kind] = i
		}
	}
	return problems
}

// ownersInOrder puts configured rules before the built-in ones, and those with an API
// group before those without.
func ownersInOrder(configured []OwnerRule) []OwnerRule {
	sorted := slices.Clone(configured)
	slices.SortStableFunc(sorted, func(a, b OwnerRule) int {
		return boolFirst(strings.Contains(a.Kind, "."), strings.Contains(b.Kind, "."))
	})
	return append(sorted, DefaultOwners()...)
}
