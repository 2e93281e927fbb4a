package reconciler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// budget is one disruption budget as it was seen.
type budget struct {
	name    string // namespace/name
	version string
	allows  bool
}

func budgetOf(pdb *policyv1.PodDisruptionBudget) budget {
	return budget{name: pdb.Namespace + "/" + pdb.Name, version: pdb.ResourceVersion, allows: pdb.Status.DisruptionsAllowed > 0}
}

// covering are the budgets whose selector takes in the pod, by name.
func (c *Cluster) covering(pod *corev1.Pod) []budget {
	all, err := c.budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	var out []budget
	for _, pdb := range all {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, budgetOf(pdb))
		}
	}
	slices.SortFunc(out, func(a, b budget) int { return strings.Compare(a.name, b.name) })
	return out
}

// allows reports whether the budgets that refused a pod may allow its eviction now: of
// several, all but one must be gone; one must have changed and allow a disruption. One
// that is gone allows everything.
func (c *Cluster) allows(pod *corev1.Pod, were []budget) bool {
	switch len(were) {
	case 0:
		return false
	case 1:
	default:
		return len(c.covering(pod)) < 2
	}
	ns, name, err := cache.SplitMetaNamespaceKey(were[0].name)
	if err != nil {
		return false
	}
	pdb, err := c.budgets.PodDisruptionBudgets(ns).Get(name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	now := budgetOf(pdb)
	return now.allows && now.version != were[0].version
}

// likeliest is the budget that most likely refused: rather one that allows nothing.
func likeliest(all []budget) []budget {
	if i := slices.IndexFunc(all, func(b budget) bool { return !b.allows }); i >= 0 {
		return all[i : i+1]
	}
	return all[:min(len(all), 1)]
}

// mayAllow reports whether a budget that changed may allow a disruption again, or covers
// other pods.
func mayAllow(a, b *policyv1.PodDisruptionBudget) bool {
	return budgetOf(b).allows || !equality.Semantic.DeepEqual(a.Spec.Selector, b.Spec.Selector)
}
