package watch

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// wholeNodePolicy is a policy that reads all of a Node.
const wholeNodePolicy = `
[[policies]]
name = "Whole"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource == null"
[policies.healthEvent]
componentClass = "Node"
message = "m"
recommendedAction = "NONE"
`

var nodeKind = schema.GroupVersionKind{Version: "v1", Kind: "Node"}

func parse(tb testing.TB, text string) *policy.Set {
	tb.Helper()
	set, err := policy.Parse("policies.toml", text, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// TestPackedObjectsRoundTrip: every value of JSON, with the type that a client
// gives it: a whole number is an int64, and one with a point or an exponent a float64.
func TestPackedObjectsRoundTrip(t *testing.T) {
	set := parse(t, strings.Replace(wholeNodePolicy, "resource == null", "resource.all(k, k != '')", 1))
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-1`, `9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `1.0`, `-1.0`, `0.0`, `-0.0`,
		`1.5`, `1e2`, `1e18`, `1e20`, `1e21`, `1.7976931348623157e308`, `5e-324`, `123456789012345680000.0`,
		`""`, `"a b"`, `"\"\\/\b\f\n\r\t"`, `"\u0000\u001f\u007f\u2028"`, `"<a>&é世🙂"`, `"\ud800"`, `{}`, `[]`, `[[],{},[{"a":[null]}]]`, `{"a b":{"":1},"é\n":"x"}`,
	} {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","resourceVersion":"7"},"value":` + text + `}`)); err != nil {
			t.Fatal(err)
		}
		want := object.DeepCopy().Object
		packed, err := pack(set, nodeKind)(object)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := unpack(packed)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// TestStoreContents: a packed object keeps its key and version. A packed object and the placeholder
// of a deleted one are not packed again.
func TestStoreContents(t *testing.T) {
	set := chartAnd(t, nil, containers)
	for kind, c := range map[schema.GroupVersionKind]struct{ object, key string }{
		podKind:  {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","resourceVersion":"7"},"spec":{"nodeName":"x","hostname":"y"}}`, "n/p"},
		nodeKind: {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"p","resourceVersion":"7"}}`, "p"},
	} {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(c.object)); err != nil {
			t.Fatal(err)
		}
		keep := pack(set, kind)
		packed, err := keep(object)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := toolscache.MetaNamespaceKeyFunc(packed); err != nil || key != c.key {
			t.Errorf("the key is %q, %v, want %q", key, err, c.key)
		}
		if m, err := meta.Accessor(packed); err != nil || m.GetResourceVersion() != "7" {
			t.Errorf("the version of %v is not 7: %v", m, err)
		}
		if raw := string(packed.(*kube.Packed).Raw); strings.Contains(raw, "hostname") || cap(packed.(*kube.Packed).Raw) != len(raw) {
			t.Errorf("%d bytes are kept: %s", cap(packed.(*kube.Packed).Raw), raw)
		}
		for _, x := range []any{packed, toolscache.DeletedFinalStateUnknown{Key: c.key, Obj: packed}} {
			if again, err := keep(x); err != nil || again != x {
				t.Errorf("%v is kept as %v, %v", x, again, err)
			}
		}
	}
}

// TestAnObjectIsFoundOrCertainlyNotThere: by its name, a cluster's own whatever
// namespace is asked for; of a namespace that is not kept nothing is known.
func TestAnObjectIsFoundOrCertainlyNotThere(t *testing.T) {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, x := range []*kube.Packed{
		{Namespace: "a", Name: "p", Raw: []byte(`{"is":"a/p"}`)}, {Name: "p", Raw: []byte(`{"is":"p"}`)}, {Namespace: "a", Name: "broken", Raw: []byte(`{`)},
	} {
		if err := store.Add(x); err != nil {
			t.Fatal(err)
		}
	}
	namespaced := kindStore{kind: podKind, store: store, namespaced: true}
	limited := kindStore{kind: podKind, store: store, namespaced: true, namespace: "a"}
	for name, c := range map[string]struct {
		of                    kindStore
		namespace, name, want string
		failed                bool
	}{
		"there":                {of: namespaced, namespace: "a", name: "p", want: "a/p"},
		"elsewhere":            {of: namespaced, namespace: "b", name: "p"},
		"the cluster's":        {of: kindStore{store: store}, name: "p", want: "p"},
		"the cluster's in a":   {of: kindStore{store: store}, namespace: "a", name: "p", want: "p"},
		"in the one namespace": {of: limited, namespace: "a", name: "p", want: "a/p"},
		"in another namespace": {of: limited, namespace: "b", name: "p", failed: true},
		"not to be decoded":    {of: namespaced, namespace: "a", name: "broken", failed: true},
	} {
		got, err := c.of.find(c.namespace, c.name)
		is, _ := got["is"].(string)
		if is != c.want || (got != nil) != (c.want != "") || (err != nil) != c.failed {
			t.Errorf("%s: found %v, %v", name, got, err)
		}
	}
	want := []item{newItem(podKind, "", "p"), newItem(podKind, "a", "broken"), newItem(podKind, "a", "p")}
	got := namespaced.list()
	slices.SortFunc(got, func(x, y item) int { return strings.Compare(x.namespace+x.name, y.namespace+y.name) })
	if !slices.Equal(got, []item{want[1], want[2], want[0]}) {
		t.Errorf("the objects are %v", got)
	}
}

// TestChangesArriveAfterInitialSync: before that the objects of a kind are
// known, and none of them is looked at; gone ones are handed over by their key.
func TestChangesArriveAfterInitialSync(t *testing.T) {
	var got []item
	c := &cluster{
		set: parse(t, wholeNodePolicy), log: slog.New(slog.DiscardHandler), enqueue: func(i item) { got = append(got, i) },
		metrics: NewMetrics(prometheus.NewRegistry(), func() (int, int) { return 0, 0 }), synced: map[schema.GroupVersionKind]kindStore{},
	}
	c.changed(nodeKind, &kube.Packed{Name: "early"})
	if _, err := c.Find(nodeKind, "", "early"); !errors.Is(err, errNotFilled) {
		t.Errorf("of a cache that is not synced it is known: %v", err)
	}
	c.synced[nodeKind] = kindStore{store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	c.changed(nodeKind, &kube.Packed{Name: "a"})
	c.changed(nodeKind, toolscache.DeletedFinalStateUnknown{Key: "n/gone"})
	c.changed(podKind, &kube.Packed{Name: "other"})
	if want := []item{newItem(nodeKind, "", "a"), newItem(nodeKind, "n", "gone")}; !slices.Equal(got, want) {
		t.Errorf("handed over are %v, want %v", got, want)
	}
	if object, err := c.Find(nodeKind, "", "early"); object != nil || err != nil {
		t.Errorf("what does not exist is %v, %v", object, err)
	}
}
