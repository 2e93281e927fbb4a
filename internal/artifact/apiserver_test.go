package artifact_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// definition of the kind: the API server fills in a size.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: string, default: small}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func widgets(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	if err := cluster.Apply(t.Context(), strings.NewReader(definition)); err != nil {
		t.Fatal(err)
	}
	return cluster.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
}

// writer is a process that renders one object.
type writer struct {
	t        *testing.T
	object   artifact.Object
	progress artifact.Progress
	// made are the inputs whose outputs were read, in order.
	made []string
}

func newWriter(t *testing.T, resource dynamic.ResourceInterface, name string, lifecycle artifact.Lifecycle) *writer {
	return &writer{t: t, progress: artifact.Progress{Slot: artifact.Slot{ID: name}}, object: artifact.Object{
		Resource: resource, Name: name, Lifecycle: lifecycle, Rule: &rule, Paths: map[string]string{"result": ".status.result"},
	}}
}

func (w *writer) render(input string) artifact.Definition {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"input": input}}}
	d, err := artifact.Define(o, w.progress.Slot.ID, map[string]any{"input": input})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *writer) pass(input string) artifact.Decision {
	w.t.Helper()
	p, d, err := w.object.Pass(w.t.Context(), w.progress, w.render(input), time.Now(), func(_ context.Context, p artifact.Progress) error {
		for _, o := range p.Outputs {
			var result struct{ Of string }
			if err := json.Unmarshal([]byte(o.Value), &result); err != nil {
				return err
			}
			if from, _ := artifact.Digest(map[string]any{"input": result.Of}); from != o.InputDigest {
				w.t.Errorf("an output of %s is said to be of %s", result.Of, o.InputDigest)
			}
			if len(w.made) == 0 || w.made[len(w.made)-1] != result.Of {
				w.made = append(w.made, result.Of)
			}
		}
		w.progress = p
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.progress = p
	return d
}

// work is the object's controller: it makes the output of the spec that it has read.
func work(t *testing.T, resource dynamic.ResourceInterface, name, ready string, trigger int) {
	t.Helper()
	o, err := resource.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	input, _, _ := unstructured.NestedString(o.Object, "spec", "input")
	status(t, resource, o, ready, map[string]any{"of": input, "trigger": int64(trigger)})
}

func status(t *testing.T, resource dynamic.ResourceInterface, o *unstructured.Unstructured, ready string, result map[string]any) {
	t.Helper()
	o.Object["status"] = map[string]any{
		"observedGeneration": o.GetGeneration(), "result": result, "conditions": []any{map[string]any{"type": "Ready", "status": ready}},
	}
	if _, err := resource.UpdateStatus(context.WithoutCancel(t.Context()), o, metav1.UpdateOptions{}); err != nil && t.Context().Err() == nil {
		t.Errorf("writing the status: %v", err)
	}
}

// TestDriftOnAnAPIServer: an outsider edits the spec in each state of the object.
func TestDriftOnAnAPIServer(t *testing.T) {
	resource := widgets(t)
	for i, x := range []struct {
		lifecycle artifact.Lifecycle
		ready     string
		spec      string // afterwards
		health    healthrule.State
		read      bool
	}{
		{artifact.Mutable, "Unknown", "map[input:a size:small]", healthrule.Unknown, false},
		{artifact.Mutable, "True", "map[input:a size:small]", healthrule.Unknown, false},
		{artifact.Mutable, "False", "map[input:a size:small]", healthrule.Unknown, false},
		{artifact.Immutable, "Unknown", "map[input:foreign more:foreign size:large]", healthrule.Unknown, false},
		{artifact.Immutable, "True", "map[input:foreign more:foreign size:large]", healthrule.Healthy, false},
		{artifact.Immutable, "False", "map[input:foreign more:foreign size:large]", healthrule.Unhealthy, false},
	} {
		t.Run(fmt.Sprint(x.lifecycle, " ", x.ready), func(t *testing.T) {
			s := newWriter(t, resource, fmt.Sprint("drift-", i), x.lifecycle)
			s.pass("a")
			patch := `{"spec":{"input":"foreign","more":"foreign","size":"large"}}`
			if _, err := resource.Patch(t.Context(), s.object.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			work(t, resource, s.object.Name, x.ready, 0)
			d := s.pass("b")
			o, err := resource.Get(t.Context(), s.object.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(o.Object["spec"]); got != x.spec || d.Health.State != x.health || d.Read != x.read || len(s.made) != 0 || d.Drifted != (x.lifecycle == artifact.Immutable) {
				t.Errorf("%s, %+v, outputs of %v", got, d, s.made)
			}
			if x.lifecycle == artifact.Immutable {
				return
			}
			// The object is itself again: its output is read, and then the next is written.
			work(t, resource, s.object.Name, "True", 0)
			s.pass("b")
			work(t, resource, s.object.Name, "True", 0)
			s.pass("b")
			if fmt.Sprint(s.made) != "[a b]" {
				t.Errorf("outputs of %v, want a and b", s.made)
			}
		})
	}
}

// TestAnExternalTrigger: something else changes the object's output while a newer rendered
// definition waits. That output belongs to the older definition.
func TestAnExternalTrigger(t *testing.T) {
	resource := widgets(t)
	s := newWriter(t, resource, "trigger", artifact.Mutable)
	s.pass("a")
	work(t, resource, s.object.Name, "True", 1)
	s.pass("a")
	work(t, resource, s.object.Name, "Unknown", 2) // something happened, and is being worked on
	if d := s.pass("b"); d.Health.State != healthrule.Unknown || s.progress.Slot.Applied.Digest != s.render("a").Digest {
		t.Errorf("written while Unknown: %+v", d)
	}
	work(t, resource, s.object.Name, "True", 2)
	s.pass("b") // read, as a's, and only then written
	if o := s.progress.Outputs; len(o) != 1 || !strings.Contains(o[0].Value, `"trigger":2`) || o[0].DefinitionDigest != s.render("a").Digest {
		t.Errorf("outputs %+v", o)
	}
	work(t, resource, s.object.Name, "True", 2)
	s.pass("b")
	if o := s.progress.Outputs; len(o) != 1 || o[0].DefinitionDigest != s.render("b").Digest || fmt.Sprint(s.made) != "[a b]" {
		t.Errorf("outputs %+v of %v", o, s.made)
	}
}

// TestNoStarvation: definitions are rendered much faster than the object can follow, and outputs
// come all the same, each of one definition; most definitions are never written.
func TestNoStarvation(t *testing.T) { starve(t, 10*time.Millisecond, 200*time.Millisecond, 6) }

func TestNoStarvationForAMinute(t *testing.T) {
	testkit.Long(t, "TestNoStarvation")
	starve(t, 50*time.Millisecond, 2*time.Second, 30)
}

func starve(t *testing.T, pace, takes time.Duration, rounds int) {
	t.Helper()
	resource := widgets(t)
	s := newWriter(t, resource, strings.ToLower(t.Name()), artifact.Mutable)
	ctx, stop := context.WithCancel(t.Context())
	var controller sync.WaitGroup
	controller.Go(func() {
		var generation int64
		for ctx.Err() == nil {
			o, err := resource.Get(ctx, s.object.Name, metav1.GetOptions{})
			if err != nil || o.GetGeneration() == generation {
				pause(ctx, pace)
				continue
			}
			pause(ctx, takes)
			generation = o.GetGeneration()
			input, _, _ := unstructured.NestedString(o.Object, "spec", "input")
			status(t, resource, o, "True", map[string]any{"of": input})
		}
	})
	updates := 0
	for len(s.made) < rounds {
		updates++
		s.pass(fmt.Sprint("stamp-", updates))
		pause(t.Context(), pace)
	}
	stop()
	controller.Wait()
	t.Logf("%d stamps, one in %s; an object that takes %s; outputs of %s", updates, pace, takes, strings.Join(s.made, ", "))
	if o, err := resource.Get(t.Context(), s.object.Name, metav1.GetOptions{}); err != nil || o.GetGeneration() > int64(rounds+1) {
		t.Errorf("generation %d after %d outputs, %v", o.GetGeneration(), rounds, err)
	}
}

// pause waits between two passes of a writer or a controller.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
