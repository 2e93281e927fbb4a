package rulematch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// reservedLabels are labels of Nodes by which Kubernetes, the GPU operator and people
// describe what a node is; reservedPrefixes begin more of them.
var (
	reservedLabels = []string{
		nodemark.StateLabel, nodemark.RepeatOffenderLabel, nodemark.FormerRepeatOffenderLabel, nodemark.ManagedLabel, nodemark.FormerManagedLabel, "nvidia.com/gpu.present",
	}
	reservedPrefixes = []string{"node-role.kubernetes.io/", "kubernetes.io/", "topology.kubernetes.io/", "beta.kubernetes.io/"}
)

const (
	// reservedPart is in the labels that kubelets may not write either.
	reservedPart = "node-restriction.kubernetes.io/"
	// kubernetes is in the taints of Kubernetes' own, which its controllers put on and
	// take off.
	kubernetes = "kubernetes.io/"
)

// reserved refuses marks that the chart's admission policy (manifests/nodes.yaml)
// lets no service write: every patch of a Node with one would be refused, and no node
// quarantined.
func reserved(s Set, at string) error {
	var problems []error
	if l := s.Label; l != nil && (slices.Contains(reservedLabels, l.Key) || strings.Contains(l.Key, reservedPart) ||
		slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(l.Key, p) })) {
		problems = append(problems, fmt.Errorf("%s.label.key %q identifies a node and cannot be changed by rule sets", at, l.Key))
	}
	if t := s.Taint; t != nil && strings.Contains(t.Key, kubernetes) {
		problems = append(problems, fmt.Errorf("%s.taint.key %q is reserved by Kubernetes and cannot be changed by rule sets", at, t.Key))
	}
	return errors.Join(problems...)
}
