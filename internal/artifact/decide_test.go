package artifact_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func define(t *testing.T, text string) artifact.Definition {
	t.Helper()
	d, err := artifact.Define(parse(t, text), "slot", nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// made is the object that an API server makes of a definition, in a state of its Ready
// condition.
func made(t *testing.T, d artifact.Definition, ready string) *unstructured.Unstructured {
	t.Helper()
	o, err := d.Object(0)
	if err != nil {
		t.Fatal(err)
	}
	o.SetUID("uid")
	o.SetGeneration(1)
	o.SetResourceVersion("7")
	_ = unstructured.SetNestedField(o.Object, "filled in", "spec", "defaulted")
	status := map[string]any{"observedGeneration": int64(1)}
	if ready != "" {
		status["conditions"] = []any{map[string]any{"type": "Ready", "status": ready}}
	}
	o.Object["status"] = status
	return o
}

const widget = "{apiVersion: example.com/v1, kind: Widget, spec: {input: %}}"

func of(input string) string { return strings.ReplaceAll(widget, "%", input) }

// TestDecide has the rules of read and write, drift, and what is lost.
func TestDecide(t *testing.T) {
	a, b, c := define(t, of("a")), define(t, of("b")), define(t, of("c"))
	applied, err := a.As(made(t, a, "True"))
	if err != nil {
		t.Fatal(err)
	}
	known := artifact.Slot{ID: "slot", UID: "uid", Applied: &applied}
	with := func(s artifact.Slot, change func(*artifact.Slot)) artifact.Slot { change(&s); return s }
	edited := func(o *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		change(o)
		return o
	}
	deleted := func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: start}) }
	foreign := func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "x", "spec", "foreign") }
	for name, x := range map[string]struct {
		slot      artifact.Slot
		lifecycle artifact.Lifecycle
		wanted    artifact.Definition
		live      *unstructured.Unstructured
		readErr   error
		timeout   time.Duration
		want      string // verb, state, reason, read or not
	}{
		"absent: what is wanted is intended":       {slot: artifact.Slot{ID: "slot"}, wanted: a, want: "intend Unknown Unknown"},
		"absent and intended: created":             {slot: artifact.Slot{ID: "slot", Intended: &a}, wanted: a, want: "create Unknown Unknown"},
		"absent, and something newer is wanted":    {slot: artifact.Slot{ID: "slot", Intended: &a}, wanted: b, want: "intend Unknown Unknown"},
		"absent, nothing is wanted":                {slot: artifact.Slot{ID: "slot"}, want: "nothing Unknown Unknown"},
		"mutable, deleted: made again":             {slot: known, wanted: b, want: "intend Unknown Unknown"},
		"immutable, deleted: lost":                 {slot: known, lifecycle: artifact.Immutable, wanted: b, want: "nothing Unhealthy Lost final"},
		"immutable, another one has its name":      {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetUID("other") }), want: "nothing Unhealthy Lost final"},
		"immutable, somebody else's has its name":  {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetUID("other"); o.SetAnnotations(nil) }), want: "nothing Unhealthy Lost final"},
		"mutable, somebody else's has its name":    {slot: known, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetUID("other"); o.SetAnnotations(nil) }), want: "nothing Unhealthy NameTaken final"},
		"mutable, somebody made it again":          {slot: known, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetUID("other") }), want: "settle Unknown InFlight"},
		"not ours":                                 {slot: artifact.Slot{ID: "slot", Intended: &a}, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }), want: "nothing Unhealthy NameTaken final"},
		"ours by its uid, whatever it bears":       {slot: known, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }), want: "nothing Healthy ReadyCondition read"},
		"a read that fails says nothing":           {slot: known, wanted: b, readErr: errors.New("slow"), want: "nothing Unknown ReadError"},
		"seen for the first time":                  {slot: artifact.Slot{ID: "slot", Intended: &a}, wanted: a, live: made(t, a, "True"), want: "settle Unknown InFlight"},
		"seen, and changed by another meanwhile":   {slot: artifact.Slot{ID: "slot", Intended: &a}, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetGeneration(2) }), want: "restore Unknown Drifted"},
		"immutable, changed by another meanwhile":  {slot: artifact.Slot{ID: "slot", Intended: &a}, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetGeneration(2) }), want: "settle Unknown InFlight"},
		"the slot was lost":                        {slot: artifact.Slot{ID: "slot"}, wanted: b, live: made(t, a, "Unknown"), want: "settle Unknown InFlight"},
		"healthy: read":                            {slot: known, wanted: a, live: made(t, a, "True"), want: "nothing Healthy ReadyCondition read"},
		"healthy: read, then the newest":           {slot: known, wanted: b, live: made(t, a, "True"), want: "intend Healthy ReadyCondition read"},
		"healthy, intended: read again and write":  {slot: with(known, func(s *artifact.Slot) { s.Intended = &b }), wanted: b, live: made(t, a, "True"), want: "apply Healthy ReadyCondition read"},
		"intended, and something newer is wanted":  {slot: with(known, func(s *artifact.Slot) { s.Intended = &b }), wanted: c, live: made(t, a, "True"), want: "intend Healthy ReadyCondition read"},
		"intended, and what is there is wanted":    {slot: with(known, func(s *artifact.Slot) { s.Intended = &b }), wanted: a, live: made(t, a, "True"), want: "nothing Healthy ReadyCondition read"},
		"unhealthy: write without a read":          {slot: known, wanted: b, live: made(t, a, "False"), want: "intend Unhealthy ReadyCondition"},
		"unhealthy, nothing new":                   {slot: known, wanted: a, live: made(t, a, "False"), want: "nothing Unhealthy ReadyCondition"},
		"unknown: neither":                         {slot: known, wanted: b, live: made(t, a, "Unknown"), want: "nothing Unknown ReadyCondition"},
		"unknown, intended: neither":               {slot: with(known, func(s *artifact.Slot) { s.Intended = &b }), wanted: b, live: made(t, a, "Unknown"), want: "nothing Unknown ReadyCondition"},
		"the generation was not observed: neither": {slot: known, wanted: b, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetGeneration(2) }), want: "nothing Unknown ObservedGenerationMismatch"},
		"immutable: never written":                 {slot: known, lifecycle: artifact.Immutable, wanted: b, live: made(t, a, "True"), want: "nothing Healthy ReadyCondition read"},
		"drift, healthy: taken back":               {slot: known, wanted: b, live: edited(made(t, a, "True"), foreign), want: "revert Unknown Drifted"},
		"drift, unhealthy: taken back":             {slot: known, wanted: b, live: edited(made(t, a, "False"), foreign), want: "revert Unknown Drifted"},
		"drift, unknown: taken back":               {slot: known, wanted: b, live: edited(made(t, a, "Unknown"), foreign), want: "revert Unknown Drifted"},
		"drift of an immutable object":             {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "True"), foreign), want: "nothing Healthy ReadyCondition drifted"},
		"labels and annotations are no drift":      {slot: known, wanted: a, live: edited(made(t, a, "True"), func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"x": "y"}) }), want: "nothing Healthy ReadyCondition read"},
		"unknown for too long: written":            {slot: with(known, func(s *artifact.Slot) { s.Since = start.Add(-time.Hour) }), wanted: b, timeout: time.Minute, live: made(t, a, "Unknown"), want: "intend Unhealthy UnknownTimeout"},
		"unreadable for too long":                  {slot: with(known, func(s *artifact.Slot) { s.Since = start.Add(-time.Hour) }), wanted: b, timeout: time.Minute, readErr: errors.New("slow"), want: "nothing Unknown ReadError"},
		"immutable, fails while it is deleted":     {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "False"), deleted), want: "nothing Unhealthy Lost final"},
		"immutable, healthy while it is deleted":   {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "True"), deleted), want: "nothing Healthy ReadyCondition read"},
		"immutable, unknown while it is deleted":   {slot: known, lifecycle: artifact.Immutable, wanted: a, live: edited(made(t, a, "Unknown"), deleted), want: "nothing Unknown ReadyCondition"},
		"mutable, fails while it is deleted":       {slot: known, wanted: a, live: edited(made(t, a, "False"), deleted), want: "nothing Unknown Lost"},
		"unreadable begins no wait":                {slot: known, wanted: b, timeout: time.Nanosecond, readErr: errors.New("slow"), want: "nothing Unknown ReadError"},
	} {
		t.Run(name, func(t *testing.T) {
			f := artifact.Facts{Slot: x.slot, Lifecycle: x.lifecycle, Rule: &rule, Wanted: x.wanted, Live: x.live, ReadErr: x.readErr, UnknownTimeout: x.timeout, Now: start}
			if x.lifecycle == "" {
				f.Lifecycle = artifact.Mutable
			}
			d, err := artifact.Decide(f)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{string(d.Do), string(d.Health.State), d.Health.Reason}
			for word, is := range map[string]bool{"read": d.Read, "final": d.Final, "drifted": d.Drifted} {
				if is {
					got = append(got, word)
				}
			}
			if text := strings.Join(got, " "); text != x.want {
				t.Errorf("%s, want %s: %s", text, x.want, d.Health.Message)
			}
		})
	}
}

// TestSince: the time without a verdict counts from when the verdict was lost, not from
// when the object was written.
func TestSince(t *testing.T) {
	a := define(t, of("a"))
	applied, _ := a.As(made(t, a, "True"))
	f := artifact.Facts{Slot: artifact.Slot{ID: "slot", UID: "uid", Applied: &applied}, Lifecycle: artifact.Mutable, Rule: &rule, Wanted: a, UnknownTimeout: time.Minute}
	look := func(at time.Duration, ready string) healthrule.Result {
		f.Now, f.Live = start.Add(at), made(t, a, ready)
		d, err := artifact.Decide(f)
		if err != nil {
			t.Fatal(err)
		}
		if f.Slot, err = f.Remember(d); err != nil {
			t.Fatal(err)
		}
		return d.Health
	}
	for _, step := range []struct {
		at    time.Duration
		ready string
		want  string
	}{
		{0, "True", "ReadyCondition"},
		{time.Hour, "Unknown", "ReadyCondition"},
		{time.Hour + time.Minute, "Unknown", "ReadyCondition"},
		{time.Hour + 2*time.Minute, "Unknown", "UnknownTimeout"},
		{time.Hour + 3*time.Minute, "True", "ReadyCondition"},
		{2 * time.Hour, "Unknown", "ReadyCondition"},
	} {
		if got := look(step.at, step.ready); got.Reason != step.want {
			t.Errorf("after %s, Ready is %s: %s, want %s", step.at, step.ready, got.Reason, step.want)
		}
	}
}

// TestSinceAhead: a wait that a clock ahead of time has begun begins again, and ends.
func TestSinceAhead(t *testing.T) {
	a := define(t, of("a"))
	applied, _ := a.As(made(t, a, "True"))
	f := artifact.Facts{
		Slot:      artifact.Slot{ID: "slot", UID: "uid", Applied: &applied, Since: start.Add(1000 * time.Hour)},
		Lifecycle: artifact.Immutable, Rule: &rule, Wanted: a, UnknownTimeout: time.Minute, Live: made(t, a, "Unknown"),
	}
	for _, look := range []struct {
		at   time.Duration
		want string
	}{{0, "ReadyCondition"}, {time.Minute, "ReadyCondition"}, {time.Minute + time.Second, "UnknownTimeout"}} {
		f.Now = start.Add(look.at)
		d, err := artifact.Decide(f)
		if err != nil {
			t.Fatal(err)
		}
		if f.Slot, err = f.Remember(d); err != nil || d.Health.Reason != look.want {
			t.Errorf("after %s: %+v, want %s, %v", look.at, d.Health, look.want, err)
		}
	}
	f.Slot.Since, f.ReadErr = start.Add(1000*time.Hour), errors.New("slow")
	if d, err := artifact.Decide(f); err != nil || d.Health.Reason != healthrule.ReasonReadError || !d.Since.Equal(f.Slot.Since) {
		t.Errorf("unreadable: %+v, %v", d, err)
	}
}

// patched is the live object after a merge patch.
func patched(t *testing.T, live *unstructured.Unstructured, patch []byte, err error) map[string]any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil {
		t.Fatal(err)
	}
	if meta := change["metadata"].(map[string]any); meta["resourceVersion"] != "7" || meta["uid"] != "uid" {
		t.Errorf("the patch holds for whatever is there: %s", patch)
	}
	o := live.DeepCopy().Object
	merged(o, change)
	return o
}

// TestPatches: an update takes away what the definition before had and leaves what
// others added; reverting and restoring leave nothing of others, and restoring nothing
// that was filled in.
func TestPatches(t *testing.T) {
	a, b := define(t, "{apiVersion: example.com/v1, kind: Widget, spec: {input: a, only: {a: 1}}}"), define(t, "{apiVersion: example.com/v1, kind: Widget, metadata: {labels: {l: b}}, spec: {input: b, list: [1, 2]}}")
	live := made(t, a, "True")
	applied, _ := a.As(live)
	_ = unstructured.SetNestedField(live.Object, "x", "spec", "foreign")
	_ = unstructured.SetNestedField(live.Object, "y", "spec", "input")
	live.SetGeneration(4)
	patch, err := b.Update(applied, live)
	o := patched(t, live, patch, err)
	if got := text(o["spec"]); got != `{"defaulted":"filled in","foreign":"x","input":"b","list":[1,2]}` {
		t.Errorf("updated: %s", got)
	}
	marks := (&unstructured.Unstructured{Object: o}).GetAnnotations()
	if marks[artifact.DefinitionAnnotation] != b.Digest || marks[artifact.GenerationAnnotation] != "4" || marks[artifact.SlotAnnotation] != "slot" {
		t.Errorf("marks of the update: %v", marks)
	}
	patch, err = applied.Revert(live)
	o = patched(t, live, patch, err)
	if got := text(o["spec"]); got != `{"defaulted":"filled in","input":"a","only":{"a":1}}` {
		t.Errorf("reverted: %s", got)
	}
	patch, err = b.Restore(live)
	o = patched(t, live, patch, err)
	if got := text(o["spec"]); got != `{"input":"b","list":[1,2]}` {
		t.Errorf("restored: %s", got)
	}
	// A write of somebody who led before arrives late, and is taken back: the object
	// must not go on bearing the digest of a definition that it does not have.
	late := live.DeepCopy()
	late.SetAnnotations(map[string]string{artifact.DefinitionAnnotation: b.Digest, artifact.SlotAnnotation: "slot"})
	patch, err = applied.Revert(late)
	if marks := (&unstructured.Unstructured{Object: patched(t, late, patch, err)}).GetAnnotations(); marks[artifact.DefinitionAnnotation] != a.Digest {
		t.Errorf("marks of the object that was reverted: %v", marks)
	}
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// TestKindsWithoutASpec: a ConfigMap is compared by its data.
func TestKindsWithoutASpec(t *testing.T) {
	d := define(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, resourceVersion: '3', uid: x}, data: {a: b}, status: {x: y}}")
	if strings.Contains(d.Submitted, "resourceVersion") || strings.Contains(d.Submitted, "status") {
		t.Errorf("submitted: %s", d.Submitted)
	}
	live, err := d.Object(0)
	if err != nil {
		t.Fatal(err)
	}
	live.SetUID(types.UID("uid"))
	d, _ = d.As(live)
	if drifted, err := d.Drifted(live); drifted || err != nil {
		t.Errorf("drifted %v, %v", drifted, err)
	}
	_ = unstructured.SetNestedField(live.Object, "c", "data", "a")
	if drifted, _ := d.Drifted(live); !drifted {
		t.Error("other data is no drift")
	}
	if _, err := artifact.Define(parse(t, "{spec: {}}"), "slot", nil); err == nil {
		t.Error("something without a kind has a definition")
	}
}
