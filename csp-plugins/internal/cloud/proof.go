package cloud

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Identity is what a cloud itself says of a machine. Only who has rights in the cloud can
// change it: no kubelet writes any of it.
type Identity struct {
	// Names of the machine, by kind: private-dns-name, instance-id.
	Names map[string][]string
	// Tags of the machine; Google Cloud calls them labels.
	Tags map[string]string
}

// Proof says by what a Node is verified to be a machine's. A kubelet writes spec.providerID
// and status.addresses of its own Node, so they prove nothing.
type Proof struct {
	_ struct{} `block:"Names of machines" usage:"By what a Node is verified to be a machine of the cloud; what a kubelet writes about its own Node proves nothing"`

	// NodeNameFrom are kinds of names, or tag:KEY.
	NodeNameFrom []string `toml:"nodeNameFrom" flag:"node-name-from" usage:"kinds of names that verify which node a machine is: one of the machine's names of these kinds must be the node's name, else the machine is not touched. tag:KEY is the value of a tag (Google Cloud: label)"`
	// ClusterTag is KEY or KEY=VALUE.
	ClusterTag string `toml:"clusterTag" flag:"cluster-tag" usage:"tag (Google Cloud: label) that a machine must have to be touched, KEY or KEY=VALUE; empty requires none"`
}

// tagKind begins a kind of name that is the value of a tag.
const tagKind = "tag:"

// Validate joins everything that is wrong; kinds are those of the cloud.
func (p Proof) Validate(kinds []string) error {
	want := strings.Join(kinds, ", ") + " or tag:KEY"
	var problems []error
	if len(p.NodeNameFrom) == 0 {
		problems = append(problems, fmt.Errorf("nodeNameFrom (--node-name-from) is empty: want some of %s", want))
	}
	for _, kind := range p.NodeNameFrom {
		if key, tagged := strings.CutPrefix(kind, tagKind); tagged && key != "" || slices.Contains(kinds, kind) {
			continue
		}
		problems = append(problems, fmt.Errorf("nodeNameFrom (--node-name-from) has %q: want %s", kind, want))
	}
	if strings.HasPrefix(p.ClusterTag, "=") {
		problems = append(problems, fmt.Errorf("clusterTag (--cluster-tag) is %q: want KEY or KEY=VALUE", p.ClusterTag))
	}
	return errors.Join(problems...)
}

// Finding is what is found about a Node that claims a machine.
type Finding string

// Findings.
const (
	// Proven: the Node's name is the machine's, and no other Node's that claims it.
	Proven Finding = "proven"
	// Unproven: the cloud knows the machine by other names.
	Unproven Finding = "unproven"
	// OtherCluster: the machine lacks the cluster's tag.
	OtherCluster Finding = "other-cluster"
	// Undecided: another Node that claims the machine is proven as well.
	Undecided Finding = "undecided"
)

// Verify says whether a Node of that name is the machine's, whoever else claims it.
func (p Proof) Verify(id Identity, node string) Finding {
	if key, value, valued := strings.Cut(p.ClusterTag, "="); key != "" {
		if got, there := id.Tags[key]; !there || valued && got != value {
			return OtherCluster
		}
	}
	for _, kind := range p.NodeNameFrom {
		if slices.ContainsFunc(id.names(kind), func(name string) bool { return name != "" && strings.EqualFold(name, node) }) {
			return Proven
		}
	}
	return Unproven
}

// names of one kind.
func (id Identity) names(kind string) []string {
	if key, tagged := strings.CutPrefix(kind, tagKind); tagged {
		return []string{id.Tags[key]}
	}
	return id.Names[kind]
}

// known is how the cloud knows a machine, for people.
func (p Proof) known(id Identity) string {
	var words []string
	for _, kind := range p.NodeNameFrom {
		words = append(words, fmt.Sprintf("%s %q", kind, strings.Join(id.names(kind), ", ")))
	}
	return strings.Join(words, ", ")
}

// judge says whose a machine is of which several Nodes say that it is theirs: own is what is
// found about the Node, rivals about the others. Beside a proven Node the others do not
// count; two that are proven leave it undecided.
func judge(own Finding, rivals map[string]Finding) (found Finding, against []string) {
	for _, name := range slices.Sorted(maps.Keys(rivals)) {
		if rivals[name] == Proven {
			against = append(against, name)
		}
	}
	if own == Proven && len(against) > 0 {
		return Undecided, against
	}
	return own, against
}
