// Package removal lists what the suite has left in a cluster, and decides what becomes of
// each thing when the suite is uninstalled: removed, or left with a reason. It is a
// function of what was seen; what is not surely ours is left.
package removal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Facts are what was seen of a cluster.
type Facts struct {
	// Namespace is the installation's; Now is the cluster's time.
	Namespace string
	Now       time.Time
	// Workloads are what of the suite runs, in whatever namespace.
	Workloads []string
	Nodes     []corev1.Node
	// Pods are those that list their devices.
	Pods []metav1.ObjectMeta
	// ConfigMaps and Leases are all of the namespace, whosever they are.
	ConfigMaps []corev1.ConfigMap
	Leases     []coordinationv1.Lease
	// Claims are all leases of nodes, whosever they are.
	Claims []coordinationv1.Lease
	// Definitions are those of ProjectGroup, with their objects.
	Definitions []Definition
	// Events counts those of ProjectEvent.
	Events int
	// Unread are what could not be read, and why.
	Unread []string
}

// Definition is a CustomResourceDefinition.
type Definition struct {
	metav1.ObjectMeta

	Resource schema.GroupVersionResource
	Kind     string
	Objects  []unstructured.Unstructured
}

// Options are what a person asks for beyond the safe removal.
type Options struct {
	// ReleaseNodes takes nodes out of quarantine, and removes repairs that have not ended.
	ReleaseNodes bool
	// Definitions removes the CustomResourceDefinitions, and with them all objects.
	Definitions bool
}

// Kinds of items beside those of objects.
const (
	NodeCordon     = "Node cordon"
	NodeTaint      = "Node taint"
	NodeLabel      = "Node label"
	NodeAnnotation = "Node annotation"
	NodeCondition  = "Node condition"
	PodAnnotation  = "Pod annotation"
	ConfigMap      = "ConfigMap"
	Lease          = "Lease"
	CRD            = "CustomResourceDefinition"
	EventKind      = "Event"
	Folder         = "folder of a node"
)

// Item is one thing that the suite has left, or that could be taken for that.
type Item struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Mark is what of the object; empty is the whole.
	Mark   string `json:"mark,omitempty"`
	Remove bool   `json:"remove"`
	Reason Reason `json:"reason"`
	Note   string `json:"note,omitempty"`
	// Outcome is what became of an item that was to be removed; empty before that.
	Outcome Outcome `json:"outcome,omitempty"`
	Problem string  `json:"problem,omitempty"`

	Target Target `json:"-"`
}

// Target is the object of an item as it was seen.
type Target struct {
	Resource     schema.GroupVersionResource
	UID, Version string
	// Was is the value of a Pod's annotation.
	Was string
	// Finalizers are ours, and go first: nobody else takes them off any more.
	Finalizers []string
}

// Outcome of a removal.
type Outcome string

// Outcomes. Changed: it is not as it was seen any more, and is left.
const (
	Removed Outcome = "removed"
	Changed Outcome = "changed"
	Failed  Outcome = "failed"
)

// Plan is what becomes of everything.
type Plan struct {
	Namespace string `json:"namespace"`
	// Running are services that would write again what is removed.
	Running []string `json:"running,omitempty"`
	Unread  []string `json:"unread,omitempty"`
	Items   []Item   `json:"items"`
}

// Decide returns what becomes of everything, in the order in which it is to be done.
func Decide(f Facts, o Options) Plan {
	p := Plan{Namespace: f.Namespace, Running: running(f), Unread: f.Unread}
	open := notEnded(f)
	for i := range f.Nodes {
		p.Items = append(p.Items, ofNode(&f.Nodes[i], open, o)...)
	}
	p.Items = slices.Concat(p.Items, ofPods(f.Pods), ofConfigMaps(f.ConfigMaps), ofLeases(f), ofDefinitions(f, o), ofEvents(f.Events), folders())
	slices.SortStableFunc(p.Items, func(a, b Item) int { return rank(a.Kind) - rank(b.Kind) })
	return p
}

// rank orders the kinds: marks, objects of Kubernetes, objects of the project, their
// definitions, and what is never removed.
func rank(kind string) int {
	order := []string{NodeCordon, NodeTaint, NodeLabel, NodeAnnotation, NodeCondition, PodAnnotation, ConfigMap, Lease, "", CRD, EventKind, Folder}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return slices.Index(order, "")
}

// Removes counts what is to be removed.
func (p Plan) Removes() (n int) {
	for _, i := range p.Items {
		if i.Remove {
			n++
		}
	}
	return n
}

// Complete reports whether everything that was to be removed is.
func (p Plan) Complete() bool {
	return !slices.ContainsFunc(p.Items, func(i Item) bool { return i.Remove && i.Outcome != Removed })
}

// Reason is why an item is removed or left.
type Reason string

// Reasons of a removal.
const (
	// Managed: a service of the suite wrote the item and nothing needs it any more, so it is removed. Action: none.
	Managed Reason = "Managed"
	// Released: the item belongs to a node in quarantine or to a repair that has not ended, and `--release-nodes`
	// is given, so it is removed. Action: make sure that the node is sound, because workloads come back onto it.
	Released Reason = "Released"
	// Requested: the item is a definition of the suite or an object that people write for it, and `--crds` is given,
	// so it is removed. Action: none.
	Requested Reason = "Requested"
)

// Reasons to leave an item.
const (
	// InQuarantine: the item belongs to a node in quarantine that is not repaired, so it stays. Action: repair the
	// node and wait for its recovery, or add `--release-nodes`.
	InQuarantine Reason = "InQuarantine"
	// PreExisting: the cordon or taint was there before the quarantine and belongs to someone else, so it stays.
	// Action: none.
	PreExisting Reason = "PreExisting"
	// OfAPerson: people write the item and no service does, for example an opt-out label or a repair chain, so it
	// stays. Action: none. If you do not need it any more, remove it yourself, or add `--crds` for objects of the
	// suite.
	OfAPerson Reason = "UserManaged"
	// Uncertain: the item resembles those of the suite and is not exactly as the services write it, so it stays.
	// Action: inspect it, and remove it yourself if it belongs to the suite.
	Uncertain Reason = "Uncertain"
	// ServicesOff: a GPUReset has switched GPU services of the node off and not on again, so the item stays.
	// Action: set the labels of the Node as `status.services` of the GPUReset lists them, then remove the item
	// yourself.
	ServicesOff Reason = "ServicesOff"
	// InUse: the Lease is held and renewed by a service that runs, so it stays. Action: stop that service and run
	// the command again.
	InUse Reason = "InUse"
	// NotEnded: the repair has not ended, so its object stays. Action: wait for its end, or add `--release-nodes`
	// to give it up.
	NotEnded Reason = "InProgress"
	// ForeignFinalizer: a finalizer of another program holds the object, so it stays. Action: have that program
	// remove its finalizer, then run the command again.
	ForeignFinalizer Reason = "ForeignFinalizer"
	// NotRequested: the definition stays, because its removal would remove all objects of the kind. Action: add
	// `--crds` to remove both.
	NotRequested Reason = "NotRequested"
	// ObjectsStay: objects of the kind stay, so their definition stays too. Action: act on the reasons of these
	// objects, then run the command again with `--crds`.
	ObjectsStay Reason = "ObjectsRemain"
	// Shared: the definition NodeHealthCheck belongs to medik8s and another operator may use it, so it stays.
	// Action: none. If nothing uses it, run `kubectl delete crd nodehealthchecks.remediation.medik8s.io`.
	Shared Reason = "Shared"
	// Terminating: the definition is already being deleted. Action: none.
	Terminating Reason = "Terminating"
	// Expires: the Events expire by themselves within the time of `--event-ttl` of the API server, so they stay.
	// Action: none.
	Expires Reason = "Expires"
	// OnTheNode: the folder is on a node, where no client of the API server reaches it, so it stays. Action: run
	// the command in the last lines of the list for each node.
	OnTheNode Reason = "NodeLocal"
)

// Text is the reason in words.
func (r Reason) Text() string {
	switch r {
	case Managed:
		return ""
	case Released:
		return "because of --release-nodes"
	case Requested:
		return "because of --crds"
	case InQuarantine:
		return "in quarantine and not repaired, use --release-nodes to release the node"
	case PreExisting:
		return "it existed before the quarantine and is not managed by NVSentinel"
	case OfAPerson:
		return "users write it, no service does"
	case Uncertain:
		return "it resembles an object of NVSentinel but does not have the written form: check it manually"
	case ServicesOff:
		return "GPU services are stopped on the node: set their labels as in status.services of the GPUReset, then remove it manually"
	case InUse:
		return "it is held and being renewed"
	case NotEnded:
		return "the repair has not ended, use --release-nodes to abandon it"
	case ForeignFinalizer:
		return "another controller's finalizer blocks it"
	case NotRequested:
		return "use --crds to remove it with all objects of the kind"
	case ObjectsStay:
		return "objects of the kind remain"
	case Shared:
		return "the kind belongs to medik8s, and another operator may use it"
	case Terminating:
		return "it is terminating"
	case Expires:
		return "they expire within the --event-ttl of the API server"
	case OnTheNode:
		return "it is not reachable through the API server"
	}
	return string(r)
}

// Write writes the plan as text: every item under its kind, then how many.
func (p Plan) Write(w io.Writer) error {
	var b strings.Builder
	for _, x := range p.Unread {
		fmt.Fprintf(&b, "! not read: %s\n", x)
	}
	for _, x := range p.Running {
		fmt.Fprintf(&b, "! still running: %s\n", x)
	}
	kind, left := "", 0
	for _, i := range p.Items {
		if i.Kind != kind {
			kind = i.Kind
			fmt.Fprintf(&b, "%s\n", kind)
		}
		if !i.Remove {
			left++
		}
		fmt.Fprintf(&b, "  %s\n", i.text())
	}
	fmt.Fprintf(&b, "%d to remove, %d to leave\n", p.Removes(), left)
	b.WriteString(foldersText)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// foldersText is how the folders are removed, which this program cannot.
var foldersText = `Directories, to be removed on each node (this needs a privileged Pod, which you delete afterwards):
  kubectl debug node/<node> --profile=sysadmin --image=busybox -- chroot /host rm -rf ` + strings.Join(Folders, " ") + "\n"

func (i Item) text() string {
	out := "leave   "
	switch {
	case i.Outcome != "":
		out = fmt.Sprintf("%-8s", i.Outcome)
	case i.Remove:
		out = "remove  "
	}
	if i.Namespace != "" {
		out += i.Namespace + "/"
	}
	out += i.Name
	if i.Mark != "" {
		out += "  " + i.Mark
	}
	var why []string
	for _, text := range []string{i.Reason.Text(), i.Note, i.Problem} {
		if text != "" {
			why = append(why, text)
		}
	}
	if len(why) > 0 {
		out += ": " + strings.Join(why, "; ")
	}
	return out
}
