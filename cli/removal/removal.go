// Package removal says what the suite has left in a cluster, and what becomes of each
// thing when the suite is uninstalled: removed, or left with a reason. It is a
// function of what was seen; what is not surely ours is left.
package removal

import (
	"slices"
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
	// Definitions are those of OurGroup, with their objects.
	Definitions []Definition
	// Events counts those of OurEvent.
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

// Decide says what becomes of everything, in the order in which it is to be done.
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

// rank orders the kinds: marks, objects of Kubernetes, objects of ours, their
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

// Whole says whether everything that was to be removed is.
func (p Plan) Whole() bool {
	return !slices.ContainsFunc(p.Items, func(i Item) bool { return i.Remove && i.Outcome != Removed })
}
