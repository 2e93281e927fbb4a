package remediation

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Marks of repair objects.
const (
	// ManagedByLabel is ManagedBy on every object of the project.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "nvsentinel"
	// RecordAnnotation is the id of the record that asked for the object.
	RecordAnnotation = "dgxc.nvidia.com/nvsentinel-record"
	// GroupAnnotation and OrdinalAnnotation are its place among the attempts of a session.
	GroupAnnotation   = "dgxc.nvidia.com/nvsentinel-group"
	OrdinalAnnotation = "dgxc.nvidia.com/nvsentinel-ordinal"
	// NodeAnnotation is the node's name, for kinds without spec.nodeName.
	NodeAnnotation = "dgxc.nvidia.com/nvsentinel-node"
)

// Identity is what an object is to be called, and the marks that state what it is for.
type Identity struct {
	Name, Namespace string
	Owners          []metav1.OwnerReference
	// Labels and Annotations are added to those of the template. Empty ones are left out.
	Labels, Annotations map[string]string
}

// Own gives an object its identity, whatever its template states, and the label of our
// objects. A template gives no status.
func (i Identity) Own(o *unstructured.Unstructured) {
	o.SetName(i.Name)
	o.SetGenerateName("")
	o.SetNamespace(i.Namespace)
	o.SetOwnerReferences(i.Owners)
	delete(o.Object, "status")
	labels := joined(o.GetLabels(), i.Labels)
	labels[ManagedByLabel] = ManagedBy
	o.SetLabels(labels)
	o.SetAnnotations(joined(o.GetAnnotations(), i.Annotations))
}

// joined are texts with others over them.
func joined(texts, over map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, texts)
	for key, value := range over {
		if value != "" {
			out[key] = value
		}
	}
	return out
}
