package policy

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rights are what the monitor must be allowed to read in one place.
type Rights struct {
	// Namespace is the place; empty is the whole cluster.
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// Rights are what the enabled policies need: to get, list and watch every kind
// that they watch or look up, in the one namespace that counts if there is one.
// resource is the plural under which the API server serves a kind. Places and
// rules are sorted, the cluster first.
func (s *Set) Rights(resource func(schema.GroupVersionKind) string) []Rights {
	resources := map[string]map[string][]string{} // by namespace and API group
	for _, kind := range s.Kinds() {
		namespace, plural := s.Namespace(kind), resource(kind)
		if resources[namespace] == nil {
			resources[namespace] = map[string][]string{}
		}
		if !slices.Contains(resources[namespace][kind.Group], plural) { // one kind in two versions
			resources[namespace][kind.Group] = append(resources[namespace][kind.Group], plural)
		}
	}
	var out []Rights
	for namespace, groups := range resources {
		r := Rights{Namespace: namespace}
		for group, names := range groups {
			slices.Sort(names)
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: names, Verbs: []string{"get", "list", "watch"}})
		}
		slices.SortFunc(r.Rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.APIGroups[0], b.APIGroups[0]) })
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Rights) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out
}
