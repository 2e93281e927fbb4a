package v1alpha1

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Labels is the selector in Kubernetes' form. An empty one, which would select every
// node, is an error, and so is one that was stored before it was checked and means
// nothing.
func (n NodeSelector) Labels() (labels.Selector, error) {
	if len(n.MatchLabels) == 0 && len(n.MatchExpressions) == 0 {
		return nil, errors.New("spec.selector: must not be empty: it would select every node")
	}
	out := metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range n.MatchLabels {
		out.MatchLabels[key] = string(value)
	}
	for _, e := range n.MatchExpressions {
		r := metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator}
		for _, value := range e.Values {
			r.Values = append(r.Values, string(value))
		}
		out.MatchExpressions = append(out.MatchExpressions, r)
	}
	selector, err := metav1.LabelSelectorAsSelector(&out)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	return selector, nil
}

// Object is the reference in Kubernetes' form.
func (t TemplateReference) Object() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
}
