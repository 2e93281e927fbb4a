package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// policies joins files of one policy each, under names of their own.
func policies(t *testing.T, files ...string) *Set {
	t.Helper()
	text := ""
	for i, f := range files {
		text += strings.Replace(f, `"P"`, `"P`+string(rune('0'+i))+`"`, 1)
	}
	set, err := Parse("policies.toml", text, objects{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestWhereObjectsAreNeeded: a kind is watched in one namespace only if every policy
// about it names that one, and nothing looks it up, which may ask for any.
func TestWhereObjectsAreNeeded(t *testing.T) {
	pods := func(namespace string) string {
		return about("Pod", "true", "resource.spec.nodeName", `namespace = "`+namespace+`"`)
	}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for name, c := range map[string]struct {
		set    *Set
		of     int // policies about Pods
		place  string
		looked bool
	}{
		"no policy about it":        {policies(t, one("true")), 0, "", false},
		"one namespace":             {policies(t, pods("gpu-operator")), 1, "gpu-operator", false},
		"one namespace, twice":      {policies(t, pods("gpu-operator"), pods("gpu-operator"), one("true")), 2, "gpu-operator", false},
		"two namespaces":            {policies(t, pods("gpu-operator"), pods("network-operator")), 2, "", false},
		"one namespace, and all":    {policies(t, pods("gpu-operator"), pods("")), 2, "", false},
		"one namespace, and a look": {policies(t, pods("gpu-operator"), one("lookup('v1', 'Pod', 'a', 'b') == null")), 1, "", true},
		"a look alone":              {policies(t, one("lookup('v1', 'Pod', 'a', 'b') == null")), 0, "", true},
		"a look for a kind like it": {policies(t, pods("gpu-operator"), one("lookup('x/v1', 'Pod', 'a', 'b') == null")), 1, "gpu-operator", false},
		"another kind has no say":   {policies(t, pods("gpu-operator"), about("PodGroup", "true", "'n'")), 1, "gpu-operator", false},
		"a policy that is off":      {policies(t, pods("gpu-operator"), strings.Replace(pods(""), "enabled = true", "enabled = false", 1)), 1, "gpu-operator", false},
		"a look of one that is off": {policies(t, pods("gpu-operator"), strings.Replace(one("lookup('v1', 'Pod', 'a', 'b') == null"), "enabled = true", "enabled = false", 1)), 1, "gpu-operator", false},
	} {
		t.Run(name, func(t *testing.T) {
			of := c.set.Of(pod)
			for _, p := range of {
				if p.Kind != pod {
					t.Errorf("policy %s is about %v", p.Name, p.Kind)
				}
			}
			if place, looked := c.set.Namespace(pod), c.set.LookedUp(pod); len(of) != c.of || place != c.place || looked != c.looked {
				t.Errorf("%d policies in namespace %q, looked up %t; want %d, %q, %t", len(of), place, looked, c.of, c.place, c.looked)
			}
		})
	}
}

// TestRightsAreThoseThatAreNeeded: to read each kind once, in its place.
func TestRightsAreThoseThatAreNeeded(t *testing.T) {
	set := policies(t, one("lookup('x/v1', 'Thing', '', 'a') == lookup('x/v2', 'Thing', '', 'a')"),
		about("Pod", "true", "resource.spec.nodeName", `namespace = "gpu-operator"`), about("Event", "lookup('v1', 'Namespace', '', 'a') != null", "'n'"))
	plurals := func(kind schema.GroupVersionKind) string { return strings.ToLower(kind.Kind) + "s" }
	rule := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}
	}
	want := []Rights{
		{Rules: []rbacv1.PolicyRule{rule("", "namespaces", "nodes"), rule("events.k8s.io", "events"), rule("x", "things")}},
		{Namespace: "gpu-operator", Rules: []rbacv1.PolicyRule{rule("", "pods")}},
	}
	if diff := cmp.Diff(want, set.Rights(plurals)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
