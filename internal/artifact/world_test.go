package artifact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

var errCrashed = errors.New("the process died")

// rule of the world's objects.
var rule = healthrule.Rule{ObservedGenerationPath: ".status.observedGeneration", SingleConditionType: "Ready"}

// world is an API server with one object, its controller, an outsider, and a process
// that renders it and dies.
type world struct {
	t        *testing.T
	dice     *rand.Rand
	calm     bool // nobody disturbs any more
	live     *unstructured.Unstructured
	uids     int
	now      time.Time
	progress artifact.Progress
	input    int
	// triggers are changes of the object's surroundings, which change its output too.
	triggers int
	written  int
}

func (w *world) dies() bool { return !w.calm && w.dice.IntN(12) == 0 }

var kind = schema.GroupKind{Group: "example.com", Kind: "Widget"}

func (w *world) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if !w.calm && w.dice.IntN(20) == 0 {
		return nil, apierrors.NewTimeoutError("slow", 1)
	}
	if w.live == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "widgets"}, name)
	}
	return w.live.DeepCopy(), nil
}

func (w *world) Create(_ context.Context, o *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if w.dies() {
		return nil, errCrashed
	}
	if w.live != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	w.uids++
	o = o.DeepCopy()
	o.SetUID(types.UID(fmt.Sprint("uid-", w.uids)))
	o.SetGeneration(1)
	o.SetResourceVersion("1")
	fill(o)
	w.live = o
	w.written++
	if w.dies() {
		return nil, errCrashed
	}
	return o.DeepCopy(), nil
}

// fill is what the API server fills in.
func fill(o *unstructured.Unstructured) {
	if _, found, _ := unstructured.NestedString(o.Object, "spec", "size"); !found {
		_ = unstructured.SetNestedField(o.Object, "small", "spec", "size")
	}
}

func (w *world) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	if w.dies() {
		return nil, errCrashed
	}
	if w.live == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		w.t.Fatal(err)
	}
	if meta := patch["metadata"].(map[string]any); meta["resourceVersion"] != w.live.GetResourceVersion() || meta["uid"] != string(w.live.GetUID()) {
		return nil, apierrors.NewConflict(schema.GroupResource{}, name, errors.New("changed"))
	}
	if health := healthrule.Evaluate(w.live, &rule, nil); health.State == healthrule.Unknown && !w.foreign() {
		w.t.Errorf("written while Unknown (%s): %s", health.Reason, data)
	}
	w.edit(func(o map[string]any) { merged(o, patch) })
	w.written++
	if w.dies() {
		return nil, errCrashed
	}
	return w.live.DeepCopy(), nil
}

// foreign reports whether somebody else changed the object.
func (w *world) foreign() bool {
	if w.progress.Slot.Applied == nil {
		return true // nobody knows
	}
	drifted, err := w.progress.Slot.Applied.Drifted(w.live)
	return err != nil || drifted
}

// merged is RFC 7396.
func merged(target, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(target, k)
		case map[string]any:
			inner, ok := target[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			merged(inner, v)
			target[k] = inner
		default:
			target[k] = v
		}
	}
}

// edit changes the object as the API server does.
func (w *world) edit(change func(map[string]any)) {
	before := w.live.DeepCopy()
	change(w.live.Object)
	fill(w.live)
	w.live.SetGeneration(before.GetGeneration())
	old, _ := json.Marshal(before.Object["spec"])
	if now, _ := json.Marshal(w.live.Object["spec"]); string(now) != string(old) {
		w.live.SetGeneration(before.GetGeneration() + 1)
	}
	var version int
	_, _ = fmt.Sscan(before.GetResourceVersion(), &version)
	w.live.SetResourceVersion(fmt.Sprint(version + 1))
}

// work is one step of the object's controller: it begins with a new generation, or a
// new trigger, and is done later. Its output embeds the input that made it.
func (w *world) work() {
	if w.live == nil {
		return
	}
	input, _, _ := unstructured.NestedFieldCopy(w.live.Object, "spec", "input")
	observed, _, _ := unstructured.NestedFieldNoCopy(w.live.Object, "status", "observedGeneration")
	trigger, _, _ := unstructured.NestedFieldNoCopy(w.live.Object, "status", "trigger")
	status := map[string]any{"observedGeneration": w.live.GetGeneration(), "trigger": int64(w.triggers)}
	fresh := fmt.Sprint(observed) == fmt.Sprint(w.live.GetGeneration()) && fmt.Sprint(trigger) == fmt.Sprint(w.triggers)
	ready, message := "True", ""
	switch {
	case !fresh:
		ready = "Unknown"
		status["result"], _, _ = unstructured.NestedFieldCopy(w.live.Object, "status", "result")
	case !w.calm && w.dice.IntN(6) == 0:
		ready, message = "False", "failed"
	default:
		status["result"] = map[string]any{"of": input, "trigger": int64(w.triggers)}
	}
	status["conditions"] = []any{map[string]any{"type": "Ready", "status": ready, "message": message}}
	w.edit(func(o map[string]any) { o["status"] = status })
}

func (w *world) render() artifact.Definition {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"input": fmt.Sprint("in-", w.input)},
	}}
	if w.input%2 == 1 { // a field that not every rendered definition has
		_ = unstructured.SetNestedField(o.Object, "odd", "spec", "parity")
	}
	d, err := artifact.Define(o, "slot", map[string]any{"input": fmt.Sprint("in-", w.input)})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) save(_ context.Context, p artifact.Progress) error {
	if w.dies() {
		return errCrashed
	}
	for _, o := range p.Outputs {
		var value struct{ Of string }
		if err := json.Unmarshal([]byte(o.Value), &value); err != nil {
			w.t.Fatal(err)
		}
		if from, _ := artifact.Digest(map[string]any{"input": value.Of}); from != o.InputDigest {
			w.t.Errorf("an output of %q is said to be of %s, not %s", value.Of, o.InputDigest, from)
		}
	}
	w.progress = p
	if w.dies() {
		return errCrashed
	}
	return nil
}

func (w *world) object(lifecycle artifact.Lifecycle) artifact.Object {
	return artifact.Object{Resource: w, Name: "w", Lifecycle: lifecycle, Rule: &rule, Paths: map[string]string{"result": ".status.result"}}
}

func (w *world) pass() artifact.Decision {
	_, d, _ := w.object(artifact.Mutable).Pass(w.t.Context(), w.progress, w.render(), w.now, w.save)
	return d
}

// disturb does one thing that the rendering process does not control.
func (w *world) disturb() {
	switch w.dice.IntN(10) {
	case 0, 1:
		w.input++
	case 2:
		w.triggers++
	case 3:
		if w.live != nil {
			w.edit(func(o map[string]any) { merged(o, map[string]any{"spec": map[string]any{"input": "foreign"}}) })
		}
	case 4:
		if w.live != nil && w.dice.IntN(3) == 0 {
			w.live = nil
		}
	case 5:
		if w.live != nil {
			w.edit(func(o map[string]any) { merged(o, map[string]any{"spec": map[string]any{"extra": "foreign"}}) })
		}
	}
}

// TestEveryOutputHasItsInput: whatever others do to the object, wherever the process
// dies, no output is attributed to another input than the one that made it, nothing is written
// while the object has no verdict, and in the end the output of the newest definition is there.
func TestEveryOutputHasItsInput(t *testing.T) {
	outputs := 0
	for seed := range uint64(100) {
		w := &world{t: t, dice: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), progress: artifact.Progress{Slot: artifact.Slot{ID: "slot"}}}
		for range 60 {
			w.now = w.now.Add(time.Second)
			w.disturb()
			if w.dice.IntN(2) == 0 {
				w.work()
			}
			w.pass()
		}
		outputs += len(w.progress.Outputs)
		w.calm = true
		for range 12 {
			w.work()
			w.pass()
		}
		want, _ := artifact.Digest(map[string]any{"input": fmt.Sprint("in-", w.input)})
		if got := w.progress.Outputs; len(got) != 1 || got[0].InputDigest != want {
			t.Fatalf("seed %d: the newest input is in-%d, the outputs are %+v; %v", seed, w.input, got, w.live)
		}
		written := w.written
		if d := w.pass(); d.Do != artifact.Nothing || w.written != written {
			t.Fatalf("seed %d: at rest it is written again", seed)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if outputs < 50 {
		t.Errorf("%d outputs: the disturbances leave nothing to look at", outputs)
	}
}

// TestMissingOutputBlocksNextObject: what is healthy without its output is not
// written, until that took too long.
func TestMissingOutputBlocksNextObject(t *testing.T) {
	w := &world{t: t, calm: true, now: start, progress: artifact.Progress{Slot: artifact.Slot{ID: "slot"}}}
	object := w.object(artifact.Mutable)
	object.UnknownTimeout = time.Minute
	pass := func(at time.Duration) artifact.Decision {
		t.Helper()
		_, d, err := object.Pass(t.Context(), w.progress, w.render(), start.Add(at), w.save)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	pass(0)
	w.edit(func(o map[string]any) {
		o["status"] = map[string]any{"observedGeneration": int64(1), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	})
	w.input++
	if d := pass(time.Second); d.Health.Reason != artifact.ReasonOutputMissing || w.written != 1 {
		t.Errorf("%+v, written %d times", d, w.written)
	}
	if d := pass(2 * time.Minute); d.Health.State != healthrule.Unknown || w.written != 2 || w.progress.Slot.Applied.Digest != w.render().Digest {
		t.Errorf("after too long: %+v, written %d times", d, w.written)
	}
}

// TestADefinitionThatIsRefused: the API server's error is reported, and a later
// definition may succeed.
func TestADefinitionThatIsRefused(t *testing.T) {
	w := &world{t: t, calm: true, now: start, progress: artifact.Progress{Slot: artifact.Slot{ID: "slot"}}}
	refusing := w.object(artifact.Mutable)
	refusing.Resource = refuses{w}
	_, d, err := refusing.Pass(t.Context(), w.progress, w.render(), start, w.save)
	if err != nil || d.Health.Reason != artifact.ReasonRefused || d.Final || !strings.Contains(d.Health.Message, "spec.input is wrong") {
		t.Errorf("%+v, %v", d, err)
	}
	w.input++
	w.pass()
	if w.progress.Slot.Applied == nil || w.progress.Slot.Applied.Digest != w.render().Digest {
		t.Errorf("the next definition: %+v", w.progress.Slot)
	}
}

type refuses struct{ artifact.Resource }

func (refuses) Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewInvalid(kind, "w", field.ErrorList{field.Invalid(field.NewPath("spec", "input"), "x", "spec.input is wrong")})
}
