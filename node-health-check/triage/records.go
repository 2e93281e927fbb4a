package triage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

func uid(r *Remediation) types.UID { return types.UID(r.UID) }

// Record is a remediation as the status reports it.
func (r *Remediation) Record() v1alpha1.Remediation {
	version, kind := r.Kind.ToAPIVersionAndKind()
	return v1alpha1.Remediation{
		Resource: corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: r.Namespace, Name: r.Name, UID: uid(r)},
		Started:  metav1.Time{Time: r.Created}, TemplateName: r.Template,
	}
}

// records are a node's remediations as the status reports them: those that are
// there, those that are over, and those of which nobody can know. One that was not
// given up and is gone is forgotten, so that it can be made again.
func (r *round) records(node string) []v1alpha1.Remediation {
	var out []v1alpha1.Remediation
	for _, t := range r.before[node].Remediations {
		there := slices.ContainsFunc(r.mine[node], func(one *Remediation) bool { return uid(one) == t.Resource.UID })
		if there || t.TimedOut != nil || r.Unread[kindOf(t.Resource)] {
			out = append(out, *t.DeepCopy())
		}
	}
	missing := slices.Clone(r.mine[node])
	slices.SortStableFunc(missing, func(a, b *Remediation) int { return a.Created.Compare(b.Created) })
	for _, one := range missing {
		if !slices.ContainsFunc(out, func(t v1alpha1.Remediation) bool { return t.Resource.UID == uid(one) }) {
			out = append(out, one.Record())
		}
	}
	return out
}
