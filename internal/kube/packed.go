package kube

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Packed is an object as a large cache keeps it: what a cache asks of it, and the rest as
// bytes, which are decoded when they are needed. A decoded object takes several times
// their memory, in maps and strings of its own, and most objects of a cache are never
// looked at. A transform of an informer makes it.
type Packed struct {
	Namespace, Name string
	// Version is the object's resource version: an informer tells of no change without one.
	Version string
	// Node is the node that a pod is bound to, for an index; empty for other objects.
	Node string
	Raw  []byte
}

// GetObjectMeta is what meta.Accessor finds: namespace, name and resource version.
func (p *Packed) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.Version}
}
