package sweep_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/internal/sweep"
	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// uninstall runs the command line and reads its answer.
func (w world) uninstall(t *testing.T, args ...string) (p removal.Plan, code int, problem string) {
	t.Helper()
	var out, errs bytes.Buffer
	program := command.Program{Out: &out, Err: &errs, Clock: clock.RealClock{}}
	args = append([]string{"uninstall", "-o", "json", "-n", w.namespace, "--kubeconfig", w.cluster.AdminKubeconfig()}, args...)
	code = program.Run(t.Context(), args)
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatalf("%v: exit code %d: %s %s", err, code, out.String(), errs.String())
	}
	return p, code, errs.String()
}

// removes are the items of a plan that go, in the words of an inventory.
func removes(p removal.Plan) (out []string) {
	for _, i := range p.Items {
		if !i.Remove {
			continue
		}
		at := i.Name
		if i.Namespace != "" {
			at = i.Namespace + "/" + at
		}
		out = append(out, strings.TrimSpace(i.Kind+" "+at+" "+i.Mark))
	}
	slices.Sort(out)
	return out
}

// differ compares two inventories: what is gone, and whether anything else changed.
func differ(t *testing.T, before, after map[string]string) (gone []string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		now, is := after[key]
		if !is {
			gone = append(gone, key)
		} else if now != before[key] {
			t.Errorf("%s was %s, is %s", key, before[key], now)
		}
	}
	for key := range after {
		if _, was := before[key]; !was {
			t.Errorf("%s is new", key)
		}
	}
	return gone
}

// TestUninstall: the list changes nothing, --yes removes exactly what was listed, and
// nothing is left to do afterwards; then the same for what has to be asked for.
func TestUninstall(t *testing.T) {
	w := newWorld(t)
	for _, asked := range [][]string{nil, {"--release-nodes"}, {"--release-nodes", "--crds"}} {
		before := w.inventory(t)
		listed, code, _ := w.uninstall(t, append(asked, "--dry-run")...)
		if gone := differ(t, before, w.inventory(t)); len(gone) > 0 || code != command.ExitComplete || len(removes(listed)) == 0 {
			t.Fatalf("%v listed %d, with exit code %d, and took %v", asked, len(removes(listed)), code, gone)
		}
		done, code, problem := w.uninstall(t, append(asked, "--yes")...)
		if code != command.ExitComplete || !done.Complete() {
			t.Fatalf("%v: exit code %d: %s %+v", asked, code, problem, done.Items)
		}
		w.settled(t)
		if diff := cmp.Diff(removes(listed), differ(t, before, w.inventory(t))); diff != "" {
			t.Errorf("%v (-listed +gone):\n%s", asked, diff)
		}
		before = w.inventory(t)
		again, code, _ := w.uninstall(t, append(asked, "--yes")...)
		if n := removes(again); len(n) > 0 || code != command.ExitComplete {
			t.Errorf("%v: the second time there is %v, exit code %d", asked, n, code)
		}
		if gone := differ(t, before, w.inventory(t)); len(gone) > 0 {
			t.Errorf("%v: the second time took %v", asked, gone)
		}
	}
	var left []string
	for _, i := range w.left(t) {
		left = append(left, i.Kind+" "+i.Name+" "+i.Mark+" "+string(i.Reason))
	}
	want := []string{
		"Node label labelled nvsentinel.dgxc.nvidia.com/managed=false UserManaged",
		"Node annotation alone dgxc.nvidia.com/nvsentinel-reset ServicesOff",
		"Node condition labelled Theirs=True Uncertain",
		"RebootNode ended-but-held  ForeignFinalizer",
		"CustomResourceDefinition nodehealthchecks.remediation.medik8s.io  Shared",
		"CustomResourceDefinition rebootnodes.janitor.dgxc.nvidia.com  ObjectsRemain",
		"Event 1 Events  Expires",
		"folder of a node /var/run/nvsentinel  NodeLocal",
		"folder of a node /var/lib/nvsentinel  NodeLocal",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left in the end (-want +got):\n%s", diff)
	}
}

// left are the items when everything was asked for.
func (w world) left(t *testing.T) []removal.Item {
	t.Helper()
	p, _, _ := w.uninstall(t, "--release-nodes", "--crds")
	return p.Items
}

// sweeper works on the world without the command line; stop refuses writes.
func (w world) sweeper(t *testing.T, stop func() error) sweep.Sweep {
	t.Helper()
	rc := w.cluster.RESTConfig()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				if err := stop(); err != nil {
					return nil, err
				}
			}
			return next.RoundTrip(r)
		})
	})
	cluster, err := kube.ForConfig(rc, kube.Config{}, "uninstall-test")
	if err != nil {
		t.Fatal(err)
	}
	return sweep.Sweep{Cluster: cluster, Namespace: w.namespace, Clock: clock.RealClock{}, Within: time.Minute}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (rt roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

// TestStoppedAtEveryWrite: a run that is stopped after each of its writes goes on where
// it was, and comes to the same end.
func TestStoppedAtEveryWrite(t *testing.T) {
	w := newWorld(t)
	asked := removal.Options{ReleaseNodes: true}
	before := w.inventory(t)
	left := 0
	s := w.sweeper(t, func() error {
		if left--; left < 0 {
			return errors.New("stopped")
		}
		return nil
	})
	facts, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := removal.Decide(facts, asked)
	for runs := 0; ; runs++ {
		if facts, err = s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		plan := removal.Decide(facts, asked)
		if plan.Removes() == 0 {
			break
		}
		if left = 1; runs > first.Removes() {
			t.Fatalf("after %d runs there is %v", runs, removes(plan))
		}
		s.Do(t.Context(), facts, &plan)
	}
	if diff := cmp.Diff(removes(first), differ(t, before, w.inventory(t))); diff != "" {
		t.Errorf("(-listed +gone):\n%s", diff)
	}
}

// TestConcurrentlyChangedObjectsRemain: each thing that is not as it was when it was listed is
// named, and stays.
func TestConcurrentlyChangedObjectsRemain(t *testing.T) {
	w := newWorld(t)
	s := w.sweeper(t, func() error { return nil })
	facts, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := removal.Decide(facts, removal.Options{ReleaseNodes: true})
	w.changeAll(t, plan)
	before := w.inventory(t)
	s.Do(t.Context(), facts, &plan)
	for _, i := range plan.Items {
		if i.Remove && i.Outcome != removal.Changed {
			t.Errorf("%s %s %s: %s %s", i.Kind, i.Name, i.Mark, i.Outcome, i.Problem)
		}
	}
	if gone := differ(t, before, w.inventory(t)); len(gone) > 0 {
		t.Errorf("took %v", gone)
	}
}

// TestAnObjectThatIsMadeMeanwhile keeps its definition, with which it would go.
func TestAnObjectThatIsMadeMeanwhile(t *testing.T) {
	w := newWorld(t)
	s := w.sweeper(t, func() error { return nil })
	facts, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := removal.Decide(facts, removal.Options{Definitions: true})
	templates := w.cluster.Dynamic().Resource(reboots.GroupVersion().WithResource("terminatenodetemplates"))
	late := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "TerminateNodeTemplate", "metadata": map[string]any{"name": "late"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}},
	}}
	if _, err := templates.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Do(t.Context(), facts, &plan)
	w.settled(t)
	if _, err := templates.Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, i := range plan.Items {
		want := removal.Removed
		if i.Kind == removal.CRD && strings.HasPrefix(i.Name, "terminatenodetemplates.") {
			want = removal.Changed
		}
		if i.Remove && i.Outcome != want {
			t.Errorf("%s %s: %s %s", i.Kind, i.Name, i.Outcome, i.Problem)
		}
	}
	if err := templates.Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// changeAll changes every object of which a plan removes something.
func (w world) changeAll(t *testing.T, p removal.Plan) {
	t.Helper()
	client := w.cluster.Client().CoreV1()
	for _, i := range p.Items {
		var err error
		switch {
		case !i.Remove:
		case i.Kind == removal.NodeCondition:
			var node *corev1.Node
			if node, err = client.Nodes().Get(t.Context(), i.Name, metav1.GetOptions{}); err == nil {
				for j := range node.Status.Conditions {
					node.Status.Conditions[j].Message += " Recommended Action=NONE;"
				}
				_, err = client.Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			}
		case strings.HasPrefix(i.Kind, "Node "):
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"later"}}}`, nodemark.ReleasedAnnotation)
			_, err = client.Nodes().Patch(t.Context(), i.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		case i.Kind == removal.PodAnnotation:
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"later"}}}`, i.Mark)
			_, err = client.Pods(i.Namespace).Patch(t.Context(), i.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		default:
			patch := []byte(`{"metadata":{"annotations":{"changed":"meanwhile"}}}`)
			_, err = w.cluster.Dynamic().Resource(i.Target.Resource).Namespace(i.Namespace).Patch(t.Context(), i.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
