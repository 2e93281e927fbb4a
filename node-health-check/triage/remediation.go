package triage

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// maxName is how long the name of an object may be, and digest how much of it a
// template's digest takes.
const (
	maxName = 253
	digest  = 8
)

// Name of the remediation of a step for a node. It is the node's; where a node may
// have one of each template, the template's digest follows. It never depends on what
// was made before, so that what is made twice is one object.
func (s Step) Name(node string) string {
	if !s.Multiple {
		return node
	}
	sum := sha256.Sum256([]byte(s.Template.Name))
	suffix := "-" + hex.EncodeToString(sum[:])[:digest]
	if len(node)+len(suffix) > maxName {
		whole := sha256.Sum256([]byte(node + "/" + s.Template.Name))
		return node[:maxName-2*len(suffix)] + "-" + hex.EncodeToString(whole[:])[:digest] + suffix
	}
	return node + suffix
}

// NewRemediation makes the remediation of a step for a node.
func NewRemediation(check *v1alpha1.NodeHealthCheck, s Step, n *corev1.Node) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(s.Spec)}}
	o.SetGroupVersionKind(s.Kind)
	o.SetNamespace(s.Template.Namespace)
	o.SetName(s.Name(n.Name))
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: check.Name, UID: check.UID,
	}})
	o.SetAnnotations(map[string]string{v1alpha1.NodeNameAnnotation: n.Name, v1alpha1.TemplateNameAnnotation: s.Template.Name})
	labels := map[string]string{v1alpha1.PartOfLabel: v1alpha1.PartOf}
	if IsControlPlane(n) {
		labels[v1alpha1.ControlPlaneLabel] = ""
	}
	o.SetLabels(labels)
	return o
}
