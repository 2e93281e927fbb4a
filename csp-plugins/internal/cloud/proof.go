package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Identity is what a cloud itself reports about a machine. Only somebody with rights in
// the cloud can change it: no kubelet writes any of it.
type Identity struct {
	// Names of the machine, by kind: private-dns-name, instance-id.
	Names map[string][]string
	// Tags of the machine; Google Cloud calls them labels.
	Tags map[string]string
}

// Proof defines how a Node is verified as the Node of a machine. A kubelet writes
// spec.providerID and status.addresses of its own Node, so they prove nothing.
type Proof struct {
	_ struct{} `block:"Machine names" usage:"How a plugin verifies that a Node is a machine of the cloud. Values that a kubelet writes to its own Node are not trusted"`

	// NodeNameFrom are kinds of names, or tag:KEY.
	NodeNameFrom []string `toml:"nodeNameFrom" flag:"node-name-from" usage:"Kinds of machine names that verify the node of a machine. At least one name of these kinds must equal the name of the node, or the plugin does not act on the machine. tag:KEY is the value of a tag (Google Cloud: label)."`
	// ClusterTag is KEY or KEY=VALUE.
	ClusterTag string `toml:"clusterTag" flag:"cluster-tag" usage:"Tag (Google Cloud: label) that a machine must have before the plugin acts on it, as KEY or KEY=VALUE. Empty requires no tag."`
}

// tagKind begins a kind of name that is the value of a tag.
const tagKind = "tag:"

// Validate joins everything that is wrong; kinds are those of the cloud.
func (p Proof) Validate(kinds []string) error {
	want := strings.Join(kinds, ", ") + " or tag:KEY"
	var problems []error
	if len(p.NodeNameFrom) == 0 {
		problems = append(problems, fmt.Errorf("nodeNameFrom (--node-name-from) is empty: use one or more of %s", want))
	}
	for _, kind := range p.NodeNameFrom {
		if key, tagged := strings.CutPrefix(kind, tagKind); tagged && key != "" || slices.Contains(kinds, kind) {
			continue
		}
		problems = append(problems, fmt.Errorf("nodeNameFrom (--node-name-from) has %q: use %s", kind, want))
	}
	if strings.HasPrefix(p.ClusterTag, "=") {
		problems = append(problems, fmt.Errorf("clusterTag (--cluster-tag) is %q: use KEY or KEY=VALUE", p.ClusterTag))
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

// Verify checks whether a Node of that name is the machine's, regardless of who else claims it.
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

// describe is how the cloud knows a machine, for people.
func (p Proof) describe(id Identity) string {
	var words []string
	for _, kind := range p.NodeNameFrom {
		words = append(words, fmt.Sprintf("%s %q", kind, strings.Join(id.names(kind), ", ")))
	}
	return strings.Join(words, ", ")
}

// resolveOwner decides whose a machine is that several Nodes claim: own is what is found
// about the Node, rivals about the others. Beside a proven Node the others do not count;
// two that are proven leave it undecided.
func resolveOwner(own Finding, rivals map[string]Finding) (found Finding, against []string) {
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

// believe refuses a Node whose spec.providerID may name somebody else's machine: its
// kubelet chooses it when it registers the Node.
func (p *Plugin) believe(ctx context.Context, node *corev1.Node) error {
	machine := node.Spec.ProviderID
	id, err := p.Provider.Identity(ctx, machine)
	if err != nil {
		return nothingDone(err)
	}
	one, err := p.Provider.Canonical(machine)
	if err != nil {
		return err
	}
	rivals := map[string]Finding{}
	err = p.nodes(ctx, machine, func(other *corev1.Node) {
		same, err := p.Provider.Canonical(other.Spec.ProviderID)
		if err == nil && same == one && other.UID != node.UID {
			rivals[other.Name] = p.Proof.Verify(id, other.Name)
		}
	})
	if err != nil {
		return err
	}
	found, against := resolveOwner(p.Proof.Verify(id, node.Name), rivals)
	p.report(node, machine, found, rivals)
	switch found {
	case Proven:
		return nil
	case Undecided:
		return status.Errorf(codes.FailedPrecondition, "nodes %s claim machine %q, and the cloud has the names of all of them for it (%s), so that none of them is rebooted or terminated: delete the outdated Node objects, or set one kind with --node-name-from",
			quoted(append(against, node.Name)), machine, p.Proof.describe(id))
	case OtherCluster:
		return status.Errorf(codes.FailedPrecondition, "node %q claims machine %q, which does not have the tag %q (--cluster-tag), so that it does not belong to this cluster", node.Name, machine, p.Proof.ClusterTag)
	case Unproven:
	}
	return status.Errorf(codes.FailedPrecondition, "node %q claims machine %q by spec.providerID, which its own kubelet writes, and the cloud has other names for that machine: %s%s. If it is the machine of the node, set --node-name-from=tag:KEY to the tag that contains its node name",
		node.Name, machine, p.Proof.describe(id), also(rivals))
}

// also names those who claim the machine as well.
func also(rivals map[string]Finding) string {
	if len(rivals) == 0 {
		return ""
	}
	return fmt.Sprintf(" (also claimed by nodes %s)", quoted(slices.Sorted(maps.Keys(rivals))))
}

// named is how many Nodes a message names.
const named = 5

// quoted names some Nodes.
func quoted(names []string) string {
	slices.Sort(names)
	var words []string
	for _, name := range names[:min(named, len(names))] {
		words = append(words, fmt.Sprintf("%q", name))
	}
	if more := len(names) - named; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// report logs and counts claims that are not proven: that of the Node itself, and those of
// others.
func (p *Plugin) report(node *corev1.Node, machine string, found Finding, rivals map[string]Finding) {
	if found != Proven {
		p.Metrics.claim(found)
		p.Log.Warn("node not verified as the owner of its machine, no reboot or termination", "node", node.Name, "machine", machine, "finding", found)
	}
	for _, name := range slices.Sorted(maps.Keys(rivals)) {
		p.Metrics.claim(rivals[name])
		p.Log.Warn("machine claimed by another node", "machine", machine, "node", node.Name, "claimant", name, "finding", rivals[name])
	}
}

// nodes shows all Nodes.
func (p *Plugin) nodes(ctx context.Context, machine string, show func(*corev1.Node)) error {
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := p.Client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return status.Errorf(codes.Aborted, "listing other nodes of machine %q: %v", machine, err)
		}
		for i := range list.Items {
			show(&list.Items[i])
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}

// Metrics of a plugin; nil counts nothing.
type Metrics struct {
	// Claims counts unverified Nodes that claim a machine, and other claimants of a verified
	// machine, detected before a reboot or replace request.
	Claims *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{Claims: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvsentinel_csp_plugin_unverified_claims_total",
		Help: "Nodes that were not verified as owners of the machine that they claim, and other claimants of a verified machine, detected before a reboot or replace request, by reason.",
	}, []string{"reason"})}
	r.MustRegister(m.Claims)
	return m
}

func (m *Metrics) claim(found Finding) {
	if m != nil {
		m.Claims.WithLabelValues(string(found)).Inc()
	}
}
