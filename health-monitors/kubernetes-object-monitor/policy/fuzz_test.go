package policy

import (
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FuzzExpression compiles any text as a predicate and as a node association: what
// compiles must evaluate to an answer of its type or an error, twice to the same,
// and without what the expression does not read.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		"true", "resource.metadata.name", "resource.spec.nodeName", "'a' + string(now)",
		"has(resource.metadata.labels['a/b']) && resource.metadata.labels['a/b'] == 'c'",
		"resource.status.conditions.exists(c, c.type == 'Ready' && (now - timestamp(c.lastTransitionTime)) > duration('2h'))",
		"lookup('v1', 'Pod', resource.regarding.namespace, resource.regarding.name).spec.nodeName",
		"lookup('v1', 'Pod', 'default', 'p').spec.nodeName == 'n' && duration('1m') < now - timestamp(resource.t)",
		"resource.metadata.?labels['a/b'].orValue('x').matches('^[a-c]+$')", "resource.status.conditions.map(c, c.type).indexOf('Ready') >= 0",
		"quantity(resource.q).add(quantity('1Gi')).isGreaterThan(quantity('2Gi'))", "resource.list.sum() + resource.list.max() > 3 && resource.list.isSorted()",
		"'a1b22'.findAll('[0-9]+').size() == 2 && ip('10.0.0.1').family() == 4", "cel.bind(m, resource.metadata, m.name == 'n' && m.labels.all(k, k != ''))",
		"resource.list.map(x, x * 2).filter(x, x > 2).exists_one(x, x == 4) ? 'a' : 'b'", "resource == null || resource['metadata'].name.split('-')[0] == 'n'",
		"has(resource.status.conditions) && resource.status.conditions.exists(c, c.status == 'False' && resource.list.exists(i, c, c == i + 1))",
		"resource.status.?conditions.orValue([]).map(c, c.?type.orValue('')).exists(t, t == 'Ready') && resource.status.conditions[0].status != null",
		"cel.bind(c, resource.status.conditions, c.filter(c, c.type == 'Ready').size() == c.size())", "lookup('v1', 'Pod', 'default', 'p').spec.containers.exists(c, c.name == 'a')",
	} {
		f.Add(text)
	}
	pods := objects{"v1/Pod/default/p": {"metadata": map[string]any{"name": "p", "namespace": "default"}, "spec": map[string]any{"nodeName": "n", "containers": []any{"c", map[string]any{"name": "a", "image": "b"}}}}}
	object := map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "n", "labels": map[string]any{"a/b": "c", "d": "e"}},
		"regarding": map[string]any{"kind": "Pod", "namespace": "default", "name": "p"}, "t": "2026-01-01T00:00:00Z", "q": "2Gi", "list": []any{int64(1), int64(2), int64(3)},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "lastTransitionTime": "2026-03-01T11:00:00Z"}}},
	}
	env, err := environment(pods)
	if err != nil {
		f.Fatal(err)
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	f.Fuzz(func(t *testing.T, text string) {
		for _, want := range []*cel.Type{cel.BoolType, cel.StringType} {
			x, err := compile(env, text, want)
			if err != nil || x == nil {
				continue
			}
			p := &Policy{Kind: kind, predicate: x, node: x}
			set := &Set{Policies: []*Policy{p}, reads: map[schema.GroupVersionKind]*tree{}, lookedUp: map[schema.GroupVersionKind]bool{}}
			set.note(kind, x)
			answer := func(object map[string]any) (Match, string, [2]bool) {
				m, merr := p.Match(object, now, nil)
				n, nerr := p.Node(object, now, nil)
				return m, n, [2]bool{merr != nil, nerr != nil}
			}
			m, n, failed := answer(object)
			if !m.Flip.IsZero() && !m.Flip.After(now.Add(-time.Nanosecond)) {
				t.Errorf("flip %s is past", m.Flip)
			}
			if m2, n2, failed2 := answer(object); m2 != m || n2 != n || failed2 != failed {
				t.Errorf("the second answer is %v %q %v, the first was %v %q %v", m2, n2, failed2, m, n, failed)
			}
			if m2, n2, failed2 := answer(set.Prune(kind, object)); m2 != m || n2 != n || failed2 != failed {
				t.Errorf("of the pruned object it is %v %q %v, of the whole %v %q %v", m2, n2, failed2, m, n, failed)
			}
			for kind := range set.lookedUp {
				if _, err := set.Prune(kind, object)["metadata"].(map[string]any); !err {
					t.Errorf("a looked-up %s loses its name", kind)
				}
			}
		}
	})
}
