package policy

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// objects is a Finder over a map; the value broken is no answer.
type objects map[string]map[string]any

func (o objects) Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	key := strings.TrimPrefix(kind.GroupVersion().String()+"/"+kind.Kind+"/"+namespace+"/"+name, "/")
	if object, ok := o[key]; ok && object == nil {
		return nil, errors.New("the cache is not synced")
	}
	return o[key], nil
}

func example(t *testing.T, find Finder) *Set {
	t.Helper()
	text, err := os.ReadFile("testdata/policies.toml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse("policies.toml", string(text), find)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTheExampleOfTheADRLoads(t *testing.T) {
	set := example(t, objects{})
	want := []Report{
		{ComponentClass: "Node", IsFatal: true, Message: "GPU node has been NotReady for more than 2 hours", Action: record.ActionRestartVM},
		{ComponentClass: "GPU", IsFatal: true, Message: "GPU container runtime failures detected - likely node GPU driver issue", Action: record.ActionRestartVM},
	}
	if diff := cmp.Diff(want, []Report{set.Policies[0].Report, set.Policies[1].Report}); diff != "" {
		t.Error(diff)
	}
	var kinds []string
	for _, k := range set.Kinds() {
		kinds = append(kinds, k.GroupVersion().String()+"/"+k.Kind)
	}
	if diff := cmp.Diff([]string{"v1/Node", "v1/Pod", "events.k8s.io/v1/Event"}, kinds); diff != "" {
		t.Error(diff)
	}
}

func gpuNode(status string, since time.Time) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "gpu-1", "uid": "u", "labels": map[string]any{"nvidia.com/gpu.present": "true", "zone": "a"},
			"managedFields": []any{map[string]any{"manager": "kubelet"}}},
		"spec": map[string]any{"podCIDR": "10.0.0.0/24"},
		"status": map[string]any{"images": []any{"big"}, "conditions": []any{
			map[string]any{"type": "Ready", "status": status, "lastTransitionTime": since.Format(time.RFC3339)},
		}},
	}
}

func TestNotReadyForTwoHours(t *testing.T) {
	p := example(t, objects{}).Policies[0]
	bare := gpuNode("False", now.Add(-3*time.Hour))
	delete(bare["metadata"].(map[string]any)["labels"].(map[string]any), "nvidia.com/gpu.present")
	for name, c := range map[string]struct {
		object map[string]any
		want   Match
	}{
		"ready":           {gpuNode("True", now.Add(-3*time.Hour)), Match{}},
		"not yet":         {gpuNode("Unknown", now.Add(-time.Hour)), Match{Flip: now.Add(time.Hour + 1)}},
		"exactly 2 hours": {gpuNode("False", now.Add(-2*time.Hour)), Match{Flip: now.Add(1)}},
		"too long":        {gpuNode("False", now.Add(-2*time.Hour-time.Second)), Match{Matched: true}},
		"no GPU":          {bare, Match{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.Match(c.object, now, nil)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
			if node, err := p.Node(c.object, now, nil); node != "gpu-1" || err != nil {
				t.Errorf("node %q, %v", node, err)
			}
		})
	}
}

func nvmlEvent(at time.Time) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "e", "namespace": "default"}, "type": "Warning", "reason": "Failed",
		"regarding": map[string]any{"kind": "Pod", "namespace": "default", "name": "train-0"}, "reportingController": "kubelet",
		"note": "nvidia-container-cli: nvml error: driver not loaded", "eventTime": at.Format("2006-01-02T15:04:05.000000Z07:00"),
	}
}

func TestNVMLEventByLookup(t *testing.T) {
	pod := map[string]any{"spec": map[string]any{"nodeName": "gpu-7"}}
	found := objects{"v1/Pod/default/train-0": pod}
	p := example(t, found).Policies[1]
	e := nvmlEvent(now.Add(-time.Minute))
	got, err := p.Match(e, now, nil)
	if want := (Match{Matched: true, Flip: now.Add(9*time.Minute + 1)}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if node, err := p.Node(e, now, nil); node != "gpu-7" || err != nil {
		t.Errorf("node %q, %v", node, err)
	}
	if got, err := p.Match(nvmlEvent(now.Add(-11*time.Minute)), now, nil); err != nil || got.Matched {
		t.Errorf("an old event gives %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		pod  map[string]any
		have bool
		want Failure
	}{
		"pod is gone":           {want: NodeAssociationError},
		"cache is not synced":   {have: true, want: LookupError},
		"pod is not placed yet": {pod: map[string]any{"spec": map[string]any{}}, have: true, want: NodeAssociationError},
	} {
		t.Run(name, func(t *testing.T) {
			delete(found, "v1/Pod/default/train-0")
			if c.have {
				found["v1/Pod/default/train-0"] = c.pod
			}
			_, err := p.Node(e, now, nil)
			var failed *Error
			if !errors.As(err, &failed) || failed.Failure != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestOnlyReadFieldsAreKept(t *testing.T) {
	set := example(t, objects{})
	node := schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	got := set.Prune(node, gpuNode("True", now))
	want := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "gpu-1", "labels": map[string]any{"nvidia.com/gpu.present": "true"}},
		"status":   map[string]any{"conditions": gpuNode("True", now)["status"].(map[string]any)["conditions"]},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	pod := set.Prune(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, map[string]any{
		"metadata": map[string]any{"name": "p", "annotations": map[string]any{"a": "b"}}, "spec": map[string]any{"nodeName": "n", "containers": []any{}},
	})
	if diff := cmp.Diff(map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"nodeName": "n"}}, pod); diff != "" {
		t.Error(diff)
	}
}

// TestADisabledPolicyWatchesNothing: neither its kind nor what it looks up.
func TestADisabledPolicyWatchesNothing(t *testing.T) {
	text := strings.Replace(one("lookup('v1', 'Pod', 'a', 'b') == null"), "enabled = true", "enabled = false", 1)
	set, err := Parse("f", text, objects{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Policies) > 0 || len(set.Kinds()) > 0 || len(set.Rights(nil)) > 0 || !slices.Equal(set.Disabled, []string{"P"}) {
		t.Errorf("it has policies %v, kinds %v, disabled %v", set.Policies, set.Kinds(), set.Disabled)
	}
}

// TestAnOptionalFieldIsReadAlone: the forms of optional fields and keys keep what
// they name, and nothing beside it.
func TestAnOptionalFieldIsReadAlone(t *testing.T) {
	for expression, want := range map[string][]string{
		`resource.metadata.?labels['zone'].orValue('') == 'a'`:             {"zone"},
		`resource.metadata.labels[?'zone'].orValue('') == 'a'`:             {"zone"},
		`resource.?metadata.labels.zone.orValue('') == 'a'`:                {"zone"},
		`resource.metadata.?labels.optMap(l, l.size() > 1).orValue(false)`: {"nvidia.com/gpu.present", "zone"},
		`resource.metadata.?labels[resource.metadata.name].hasValue()`:     {"nvidia.com/gpu.present", "zone"},
		`resource.metadata.labels != 'a'`:                                  {"nvidia.com/gpu.present", "zone"}, // a comparison asks for no key
	} {
		set, err := Parse("f", one(expression), objects{})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got := set.Prune(set.Policies[0].Kind, gpuNode("True", now))
		metadata := got["metadata"].(map[string]any)
		labels := slices.Sorted(maps.Keys(metadata["labels"].(map[string]any)))
		if got["status"] != nil || metadata["managedFields"] != nil || !slices.Equal(labels, want) {
			t.Errorf("%s keeps %v, want the labels %s", expression, got, want)
		}
	}
}

// TestFullyReadObjectsAreKeptCompletely: but for managedFields, which are the largest part
// of many objects, and not those of an object's own.
func TestFullyReadObjectsAreKeptCompletely(t *testing.T) {
	thing := map[string]any{
		"metadata": map[string]any{"name": "n", "labels": map[string]any{"a": "b"}, "managedFields": []any{"kubelet"}},
		"spec":     map[string]any{"managedFields": "ours", "metadata": map[string]any{"managedFields": "a template's"}, "host": "text", "size": int64(3)},
	}
	metadata := map[string]any{"name": "n", "labels": map[string]any{"a": "b"}}
	name := map[string]any{"name": "n"}
	for expression, want := range map[string]map[string]any{
		`resource.size() > 0`:            {"metadata": metadata, "spec": thing["spec"]},
		`resource.metadata.size() > 0`:   {"metadata": metadata},
		`resource.spec.size() > 0`:       {"metadata": name, "spec": thing["spec"]},
		`resource.spec.host.name == 'a'`: {"metadata": name, "spec": map[string]any{"host": "text"}}, // as wrong as in the whole object
		`resource.spec.size > 2`:         {"metadata": name, "spec": map[string]any{"size": int64(3)}},
		`has(resource.status)`:           {"metadata": name},
	} {
		set, err := Parse("f", one(expression), objects{})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if diff := cmp.Diff(want, set.Prune(set.Policies[0].Kind, thing)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// one makes a file with one policy on Nodes.
func one(predicate string) string {
	return "[[policies]]\nname = \"P\"\nenabled = true\n[policies.resource]\ngroup = \"\"\nversion = \"v1\"\nkind = \"Node\"\n" +
		"[policies.predicate]\nexpression = '''" + predicate + "'''\n[policies.healthEvent]\ncomponentClass = \"Node\"\nmessage = \"m\"\nrecommendedAction = \"NONE\"\n"
}

func TestExpressions(t *testing.T) {
	for expression, want := range map[string]bool{
		`quantity('1.5Gi').isGreaterThan(quantity('1G'))`:         true,
		`quantity('50k').add(quantity('20k')) == quantity('70k')`: true,
		`isQuantity('1,3G')`: false,
		`'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1'.find('[a-z]') == 'a'`:               true,
		`[3, 1, 2].max() == 3 && [3, 1].min() == 1 && [1, 2].sum() == 3 && [1, 2].isSorted()`: true,
		`[1, 2, 1].lastIndexOf(1) == 2 && [1, 2].indexOf(5) == -1`:                            true,
		`'a,b'.split(',').size() == 2 && resource.metadata.name.startsWith('gpu')`:            true,
		`resource.metadata.?labels['absent'].orValue('x') == 'x'`:                             true,
		`has(resource.metadata.labels['no/such']) || has(resource.metadata.uid)`:              true,
		`lookup('v1', 'Pod', 'default', 'none') == null`:                                      true,
		`duration('1m') < now - timestamp('2026-03-01T11:00:00Z')`:                            true,

		// Equal amounts are equal however they are written, and neither is the larger.
		`quantity('1Gi') == quantity('1024Mi') && quantity('1Gi').compareTo(quantity('1024Mi')) == 0`: true,
		`quantity('1Gi').isGreaterThan(quantity('1024Mi'))`:                                           false,
		`quantity('1Gi').isLessThan(quantity('1024Mi'))`:                                              false,
		`quantity('1Gi') == quantity('1G')`:                                                           false,
		`quantity('1G').isLessThan(quantity('1Gi')) && quantity('1G').compareTo(quantity('1Gi')) < 0`: true,
		`quantity('0') == dyn('0')`:                                                                   false, // a text is no amount
		`quantity('50k').sub(quantity('80k')).sign() == -1 && quantity('0').sign() == 0`:              true,
		`quantity('7910m').isInteger() || !quantity('8').isInteger()`:                                 false,
		`quantity('50k').asInteger() == 50000 && quantity('7910m').asApproximateFloat() > 7.9`:        true,
	} {
		set, err := Parse("f", one(expression), objects{})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got, err := set.Policies[0].Match(gpuNode("True", now), now, nil)
		if err != nil || got.Matched != want {
			t.Errorf("%s = %v, %v", expression, got.Matched, err)
		}
	}
}

func TestNothingStallsTheMonitor(t *testing.T) {
	big := `lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))`
	set, err := Parse("f", one(big), objects{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = set.Policies[0].Match(gpuNode("True", now), now, nil)
	if err == nil || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("got %v", err)
	}
	if _, err := set.Policies[0].predicate.run(nil, &flips{now: now}, nil); err == nil {
		t.Error("no error without an object")
	}
	var _ cel.Program = set.Policies[0].predicate
}

func TestAMissingFieldIsNoMatch(t *testing.T) {
	set, err := Parse("f", one(`resource.status.phase == 'Failed'`), objects{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := set.Policies[0].Match(gpuNode("True", now), now, nil)
	var failed *Error
	if !errors.As(err, &failed) || failed.Failure != CELError || got.Matched || !strings.Contains(err.Error(), "phase") {
		t.Errorf("got %+v, %v", got, err)
	}
}
