package policy

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	coreEvent = schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	newEvent  = schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
)

// micro and whole are times as the two recorders write them.
func micro(at time.Time) string       { return at.Format("2006-01-02T15:04:05.000000Z07:00") }
func eventObject(at time.Time) string { return at.Format(time.RFC3339) }

// TestAnEventIsSeenWhenItWasSeenLast: the policy of the ADR on what each recorder
// leaves, as both versions of the API show it.
func TestAnEventIsSeenWhenItWasSeenLast(t *testing.T) {
	p := example(t, objects{}).Policies[1]
	old, late := now.Add(-time.Hour), now.Add(-time.Minute)
	still := Match{Matched: true, Flip: late.Add(10*time.Minute + 1)}
	for name, c := range map[string]struct {
		fields map[string]any // in addition to the fields of every such Event; nil removes a field
		want   Match
	}{
		"the old recorder":               {map[string]any{"eventTime": nil, "deprecatedLastTimestamp": eventObject(late)}, still},
		"the old recorder, repeated":     {map[string]any{"eventTime": nil, "deprecatedFirstTimestamp": eventObject(old), "deprecatedLastTimestamp": eventObject(late), "deprecatedCount": int64(7)}, still},
		"the old recorder, long ago":     {map[string]any{"eventTime": nil, "deprecatedLastTimestamp": eventObject(old)}, Match{}},
		"the new recorder":               {map[string]any{"eventTime": micro(late), "deprecatedLastTimestamp": nil}, still},
		"the new recorder, a series":     {map[string]any{"eventTime": micro(old), "series": map[string]any{"count": int64(2), "lastObservedTime": micro(late)}}, still},
		"a series that went on":          {map[string]any{"eventTime": micro(late), "series": map[string]any{"count": int64(2), "lastObservedTime": micro(old)}}, still},
		"no time but that of the object": {map[string]any{"eventTime": nil, "metadata": map[string]any{"name": "e", "namespace": "default", "creationTimestamp": eventObject(late)}}, still},
		"a kubelet of old that names itself in the source": {map[string]any{"eventTime": nil, "deprecatedLastTimestamp": eventObject(late), "reportingController": "",
			"deprecatedSource": map[string]any{"component": "kubelet", "host": "gpu-7"}}, still},
		"another reporter with a kubelet's source": {map[string]any{"eventTime": micro(late), "reportingController": "team",
			"deprecatedSource": map[string]any{"component": "kubelet", "host": "gpu-7"}}, Match{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := nvmlEvent(now)
			maps.Copy(e, c.fields)
			before := maps.Clone(e)
			got, err := p.Match(Normal(newEvent, e), now, nil)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
			if diff := cmp.Diff(before, e); diff != "" {
				t.Errorf("the object itself was changed:\n%s", diff)
			}
		})
	}
}

// TestEventVersionsAgree: who reports and when, in the core group too.
func TestEventVersionsAgree(t *testing.T) {
	late := eventObject(now.Add(-time.Minute))
	got := Normal(coreEvent, map[string]any{
		"eventTime": nil, "lastTimestamp": late, "reportingComponent": "", "reportingInstance": "", "source": map[string]any{"component": "kubelet", "host": "gpu-7"},
	})
	for field, want := range map[string]any{"eventTime": late, "lastTimestamp": late, "reportingComponent": "kubelet", "reportingInstance": "gpu-7"} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	at := micro(now)
	if got := Normal(coreEvent, map[string]any{"eventTime": at, "lastTimestamp": nil, "reportingComponent": "team", "reportingInstance": "x-1", "source": map[string]any{}}); got["lastTimestamp"] != at || got["reportingInstance"] != "x-1" {
		t.Errorf("an event of the new recorder: %v", got)
	}
	made := func() map[string]any {
		node := gpuNode("True", now)
		node["metadata"].(map[string]any)["creationTimestamp"] = late
		return node
	}
	if diff := cmp.Diff(made(), Normal(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, made())); diff != "" {
		t.Errorf("a Node was changed:\n%s", diff)
	}
	if got := Normal(coreEvent, nil); got != nil {
		t.Errorf("no object has become %v", got)
	}
}
