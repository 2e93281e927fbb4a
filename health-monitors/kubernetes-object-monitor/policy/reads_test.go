package policy

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"cel.dev/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// decode is an object as a client decodes it, but for its numbers.
func decode(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

// things is what TestOnlyReadElementsAreKept prunes: a list of maps with a list
// in each, a map, and names that a variable could be taken for.
const things = `{"list":[{"a":1,"b":2,"sub":[{"x":1,"y":2}]},{"a":3,"m":{"k":4,"l":5}},"text"],"map":{"p":{"a":1,"b":2}},"c":{"a":6,"b":7}}`

// TestOnlyReadElementsAreKept: and every element stays, in its place.
func TestOnlyReadElementsAreKept(t *testing.T) {
	whole := decode(t, things)
	of := func(field string) string {
		text, err := json.Marshal(map[string]any{field: whole[field]})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	a, touched := `{"list":[{"a":1},{"a":3},"text"]}`, `{"list":[{},{},"text"]}`
	for expression, want := range map[string]string{
		`resource.list.exists(c, c.a == 1)`:                                             a,
		`resource.list.all(c, has(c.a) && c['a'] > 0)`:                                  a,
		`resource.list.exists_one(c, c.?a.orValue(0) == 1)`:                             a,
		`resource.list.map(c, c.a).size() > 1`:                                          a,
		`resource.list.map(c, c.a == 1, 'x').size() > 1`:                                a,
		`resource.list[0].a == 1 && resource.list[?7].?a.hasValue()`:                    a,
		`resource.?list.orValue([]).exists(c, c.a == 1)`:                                a,
		`has(resource.list) && resource.list != null && resource.list.all(c, c.a == 1)`: a,
		`resource.list.exists(i, c, c.a == i)`:                                          a,
		`resource.list.transformList(i, c, c.a).size() > 1`:                             a,
		`resource.list.transformMap(i, c, i > 0, c.a).size() > 1`:                       a,
		`cel.bind(l, resource.list, l.exists(c, c.a == 1))`:                             a,
		`resource.?list.optMap(l, l.exists(c, c.a == 1)).orValue(false)`:                a,
		`resource.list.exists(c, cel.bind(d, c, d.a == 1))`:                             a,
		`resource.list.exists(resource, resource.a == 1)`:                               a,
		`resource.list.map(c, 1).size() == 3`:                                           touched,
		`resource.list.exists(c, c == null)`:                                            touched,
		`cel.bind(l, resource.list, true) && resource.list.all(c, true)`:                touched,
		`resource.list.exists(c, c.sub.exists(d, d.x == 1))`:                            `{"list":[{"sub":[{"x":1}]},{},"text"]}`,
		`resource.list.exists(c, c.sub.exists(c, c.y == 1) && c.a == 1)`:                `{"list":[{"a":1,"sub":[{"y":2}]},{"a":3},"text"]}`,
		`resource.list.exists(c, c.m.exists(k, k == 'k'))`:                              `{"list":[{},{"m":{"k":4,"l":5}},"text"]}`,
		`resource.list.exists(c, c.m.l == 5)`:                                           `{"list":[{},{"m":{"l":5}},"text"]}`,
		`[1].exists(c, resource.c.a == c)`:                                              `{"c":{"a":6}}`,
		`[1].exists(resource, .resource.c.a == resource)`:                               `{"c":{"a":6}}`,
		`lookup('v1', 'Node', '', 'x') == null`:                                         `{}`,
		`resource.c != null && has(resource.c)`:                                         `{"c":{}}`,

		// Whatever is not certain is kept: elements that go on whole, maps, computed ranges.
		`resource.list.filter(c, c.a == 1).size() > 0`:                              of("list"),
		`resource.list.exists(c, c == resource.c)`:                                  `{"list":` + list(t, whole) + `,"c":{"a":6,"b":7}}`,
		`resource.list.map(c, c).exists(c, c.a == 1)`:                               of("list"),
		`resource.list.exists(c, c[resource.name] == 1)`:                            of("list"),
		`resource.list.size() > 2`:                                                  of("list"),
		`resource.list == []`:                                                       of("list"),
		`(resource.list + []).exists(c, c.a == 1)`:                                  of("list"),
		`resource.list.sortBy(c, c.a).size() > 0`:                                   of("list"),
		`resource.list.exists(c, c.a == 1) && resource.list.all(c, type(c) == map)`: of("list"),
		`resource.map.exists(k, k == 'p')`:                                          of("map"),
		`resource.map.all(k, v, v.a == 1)`:                                          of("map"),
		`resource.map[0].a == 1`:                                                    of("map"),
	} {
		env, err := environment(objects{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := compile(env, expression, cel.BoolType)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if diff := cmp.Diff(decode(t, want), treeOf(x).prune(whole)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

func list(t *testing.T, of map[string]any) string {
	text, err := json.Marshal(of["list"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// treeOf is what an expression reads of the resource.
func treeOf(x *program) *tree {
	t := newTree()
	for _, r := range x.reads {
		if !r.lookup {
			t.add(r)
		}
	}
	return t
}

// corpus are expressions that read lists in every way that the environment offers.
var corpus = []string{
	`resource.spec.containers.exists(c, c.name == 'x')`,
	`resource.spec.containers.all(c, c.name != 'x' && c.resources.limits.cpu == '1')`,
	`resource.spec.containers.exists_one(c, c.ports.exists(p, p.port == 1))`,
	`resource.spec.containers.filter(c, c.name == 'x').map(d, d.image).exists(i, i == 'y')`,
	`resource.spec.containers.map(c, c.name == 'x', c.image) == ['y']`,
	`resource.spec.containers.exists(c, c.?resources.?limits.orValue({}).exists(name, name.startsWith('c')))`,
	`resource.spec.?containers.orValue([]).exists(c, c.?name.orValue('x') == 'x')`,
	`resource.?spec.?containers[?1].?name.optMap(n, n == 'x').orValue(false)`,
	`resource.spec.?containers.optFlatMap(l, l[?0]).optMap(c, c.name == 'x').orValue(true)`,
	`resource.spec.containers.all(i, c, c.port == i || has(c.name))`,
	`resource.spec.containers.exists(i, c, c.ports.exists(i, p, p.port == i))`,
	`resource.spec.containers.existsOne(i, c, c.ports[i].port == 1)`,
	`resource.spec.containers.transformList(i, c, i > 0, c.name) == ['x']`,
	`resource.spec.containers.transformMap(i, c, c.name)[0] == 'x'`,
	`resource.spec.containers.transformMapEntry(i, c, {c.name: c.ports}).size() == 2`,
	`cel.bind(all, resource.spec.containers, all.exists(c, all.exists(d, c.name == d.image)))`,
	`cel.bind(c, resource.spec, c.containers.exists(c, c.name == 'x')) && has(resource.spec.containers)`,
	`cel.bind(s, resource.spec, cel.bind(resource, s.containers, resource.exists(r, r.name == 'x') || .resource.spec.name == 'x'))`,
	`resource.spec.containers.exists(resource, resource.name == 'x' && .resource.spec.name == 'x')`,
	`resource.spec.containers.exists(c, c == resource.spec.containers[0])`,
	`resource.spec.containers.exists(c, c in resource.spec.containers)`,
	`resource.spec.containers[0] == resource.spec.containers[1]`,
	`resource.spec.containers.exists(c, type(c) == string)`,
	`resource.spec.containers.size() > resource.spec.containers.map(c, c.ports).size()`,
	`resource.spec.containers.map(c, c.ports.map(p, p.port)).flatten().exists(n, n == 1)`,
	`resource.spec.containers.sortBy(c, c.name)[0].image == 'y'`,
	`resource.spec.containers.map(c, c.name).distinct() == ['x']`,
	`resource.spec.exists(k, k == 'name') || resource.spec.all(k, v, v != null)`,
	`resource.exists(k, k == 'spec' && resource[k].name == 'x')`,
	`resource.spec != null && resource.spec.containers == null`,
	`resource.spec.containers.all(c, c != null && c.ports == null)`,
	`has(resource.spec.name) ? resource.spec.name == 'x' : has(resource.spec.containers)`,
	`(has(resource.spec.containers) ? resource.spec.containers : []).exists(c, c.name == 'x')`,
	`[resource.spec.containers, []].exists(l, l.exists(c, c.name == 'x'))`,
	`{'a': resource.spec.containers}.exists(k, v, v.exists(c, c.name == 'x'))`,
	`resource.spec.containers.exists(c, now - timestamp(c.time) > duration('1h'))`,
	`resource.spec.containers.map(c, c.port).sum() > 1 && resource.spec.containers.exists(c, c.port == 1)`,
	`sets.contains(resource.spec.containers.map(c, c.name), ['x'])`,
	`resource.spec.containers.exists(c, lookup('v1', 'Pod', 'n', c.name).spec.containers.exists(d, d.name == c.image))`,
	`lookup('v1', 'Pod', 'n', 'x') == null || lookup('v1', 'Pod', 'n', 'x').spec.containers.all(c, c.image == 'y')`,
	`cel.bind(pod, lookup('v1', 'Pod', 'n', resource.spec.name), pod != null && pod.spec.containers[0].ports[0].port == 1)`,
	`resource.spec.containers.exists(c, lookup('v1', 'Pod', 'n', 'x').spec.containers.exists(d, d == c))`,
}

// random makes values from few names and texts, so that expressions hit them.
type random struct{ *rand.Rand }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

func (r random) scalar() any {
	return pick[any](r, "x", "y", "", int64(0), int64(1), 1.0, true, nil, "2026-03-01T11:00:00Z", "2020-01-01T00:00:00Z")
}

// value is of a shape that the corpus expects, or now and then of another.
func (r random) value(field string, depth int) any {
	shape := field
	if depth <= 0 || r.IntN(8) == 0 {
		shape = pick(r, "scalar", "containers", "spec", "time")
	}
	switch {
	case depth < -2:
		return r.scalar()
	case shape == "containers" || shape == "ports":
		out := make([]any, r.IntN(4))
		for i := range out {
			out[i] = r.value("spec", depth-1)
		}
		return out
	case shape == "spec" || shape == "resources" || shape == "limits":
		out := map[string]any{}
		for _, key := range []string{"name", "image", "port", "ports", "time", "resources", "limits", "cpu", "containers", "other"} {
			if r.IntN(3) > 0 {
				out[key] = r.value(key, depth-1)
			}
		}
		return out
	}
	return r.scalar()
}

func (r random) object() map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "x"}, "spec": r.value("spec", 4)}
}

// TestPruningChangesNoAnswer: an expression has the same result for random objects that are
// pruned, looked-up ones included, as for the whole ones; an error stays an error.
func TestPruningChangesNoAnswer(t *testing.T) {
	kind, pod := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	r := random{rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same objects each time
	found := objects{}
	env, err := environment(found)
	if err != nil {
		t.Fatal(err)
	}
	output := map[string]map[string]bool{}
	for _, text := range corpus {
		x, err := compile(env, text, cel.BoolType)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		set := &Set{reads: map[schema.GroupVersionKind]*tree{}, lookedUp: map[schema.GroupVersionKind]bool{}}
		set.note(kind, x)
		p := &Policy{Name: "P", predicate: x}
		answer := func(prune bool, object map[string]any, pods map[string]map[string]any) string {
			for name, whole := range pods {
				if found[name] = whole; prune {
					found[name] = set.Prune(pod, whole)
				}
			}
			if prune {
				object = set.Prune(kind, object)
			}
			return describe(p.Match(object, now, nil))
		}
		output[text] = map[string]bool{}
		for range 250 {
			object, pods := r.object(), map[string]map[string]any{"v1/Pod/n/x": r.object(), "v1/Pod/n/y": r.object()}
			want := answer(false, object, pods)
			if got := answer(true, object, pods); got != want {
				t.Fatalf("%s: of the pruned object %s, of the whole %s; object %v, pods %v", text, got, want, object, pods)
			}
			output[text][want[:5]] = true
		}
	}
	for text, answers := range output {
		if len(answers) < 2 {
			t.Errorf("%s has always the same answer, %v, so that it proves little", text, slices.Collect(maps.Keys(answers)))
		}
	}
}

func describe(m Match, err error) string {
	switch {
	case err != nil:
		return "error"
	case m.Matched:
		return "true  " + m.Flip.String()
	}
	return "false " + m.Flip.String()
}
