package work_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
	"github.com/nvidia/nvsentinel/repair-chain/internal/work"
)

// runState is one run with its objects. Before each pass the run is what was saved last,
// as a controller that has just started finds it.
type runState struct {
	t         *testing.T
	run       *v1alpha1.RepairRun
	chain     *chain.Chain
	templates map[string]*chain.Template
	problems  map[string]string
	objects   map[string]*unstructured.Unstructured
	uids      int
	now       time.Time
	output    strings.Builder
	// writes of objects and of the run, and the one at which the process dies, before
	// it or behind it; -1 is none.
	writes, die int
	behind      bool
	saved       *v1alpha1.RepairRun
	// unreadable: no object can be read just now.
	unreadable bool
}

var errCrashed = errors.New("died")

// TestRunHistories runs the histories of testdata. Each history is repeated with a process
// that crashes at every write, which must change nothing but the number of passes.
func TestRunHistories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		l := newRunState(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { l.t = t; return l.do(d) })
	})
}

func newRunState(t *testing.T) *runState {
	return &runState{
		t: t, templates: map[string]*chain.Template{}, problems: map[string]string{}, objects: map[string]*unstructured.Unstructured{}, now: testkit.Start, die: -1,
		run: &v1alpha1.RepairRun{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu-1-x", UID: "run"},
			Spec: v1alpha1.RepairRunSpec{NodeName: "gpu-1", Chain: "c", Fault: v1alpha1.Fault{
				Record: "r1", Session: "s1", Action: "RESTART_VM", ErrorCode: []string{"79"}, Message: "GPU: \"fell\" off\nthe bus",
			}},
		},
	}
}

func (r *runState) do(d *datadriven.TestData) string {
	r.output.Reset()
	switch d.Cmd {
	case "template":
		r.template(d)
	case "chain":
		var spec v1alpha1.RepairChainSpec
		r.parse(d.Input, &spec)
		c, err := chain.Compile(spec)
		if err != nil {
			return err.Error() + "\n"
		}
		r.chain, r.run.Status = c, chain.Begin("gpu-1", spec)
	case "pass":
		r.pass(d)
	case "status":
		r.status(d)
	case "edit":
		o := r.object(d)
		var change map[string]any
		r.parse(d.Input, &change)
		before := text(o.Object["spec"])
		merge(o.Object, change)
		if text(o.Object["spec"]) != before {
			o.SetGeneration(o.GetGeneration() + 1)
		}
		touch(o)
	case "delete":
		delete(r.objects, r.nameOf(d))
	case "foreign": // somebody else's object has the name of the step's
		o := &unstructured.Unstructured{}
		o.SetName(r.nameOf(d))
		o.SetUID("foreign")
		r.objects[o.GetName()] = o
	case "giveup":
		r.run.Annotations = map[string]string{v1alpha1.TimedOutAnnotation: r.now.Format(time.RFC3339)}
	case "remove":
		r.lived(func(l *runState) error {
			gone, err := work.Worker{Resources: l.resources}.Remove(context.Background(), l.run)
			if gone {
				l.output.WriteString("all are gone\n")
			}
			return err
		})
	case "show":
		b, err := yaml.Marshal(r.object(d).Object)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	default:
		d.Fatalf(r.t, "unknown command %s", d.Cmd)
	}
	return r.output.String()
}

func (r *runState) parse(text string, into any) {
	r.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runState) template(d *datadriven.TestData) {
	t := &v1alpha1.RepairTemplate{ObjectMeta: metav1.ObjectMeta{Name: d.CmdArgs[0].Key}}
	var spec map[string]any
	r.parse(d.Input, &spec)
	if object, ok := spec["template"]; ok {
		t.Spec.Template = runtime.RawExtension{Raw: []byte(text(object))}
		delete(spec, "template")
	}
	rest := t.Spec.Template
	r.parse(text(spec), &t.Spec)
	t.Spec.Template = rest
	compiled, err := chain.CompileTemplate(t)
	delete(r.templates, t.Name)
	delete(r.problems, t.Name)
	if err != nil {
		r.problems[t.Name] = err.Error()
		fmt.Fprintln(&r.output, err)
		return
	}
	r.templates[t.Name] = compiled
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// pass takes the run as far as it goes, after the same with a process that dies.
func (r *runState) pass(d *datadriven.TestData) {
	w := chain.Facts{Session: "s1", Templates: r.templates, Problems: r.problems}
	r.unreadable = d.HasArg("unreadable")
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "session":
			w.Session = a.Vals[0]
		case "brake":
			w.Pause = a.Vals[0]
		case "unread":
			w.Unread = true
		case "excluded":
			w.Excluded = true
		case "unreadable":
		default:
			by, err := time.ParseDuration(strings.TrimPrefix(a.Key, "+"))
			if err != nil {
				d.Fatalf(r.t, "%v", err)
			}
			r.now = r.now.Add(by)
		}
	}
	w.Now = r.now
	r.lived(func(l *runState) error {
		return work.Worker{Resources: l.resources, Save: l.save}.Pass(context.Background(), l.run, l.chain, w)
	})
	for _, s := range r.run.Status.Steps {
		fmt.Fprintf(&r.output, "%s %s %s", s.Name, s.State, s.Reason)
		if s.Message != "" {
			fmt.Fprintf(&r.output, ": %s", s.Message)
		}
		for _, o := range s.Outputs {
			fmt.Fprintf(&r.output, "; %s=%s", o.Name, o.Value)
		}
		for word, is := range map[string]bool{"; stale": s.Stale, "; drifted": s.Drifted} {
			if is {
				r.output.WriteString(word)
			}
		}
		r.output.WriteString("\n")
	}
	if c := meta.FindStatusCondition(r.run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		fmt.Fprintf(&r.output, "= %s %s: %s\n", c.Status, c.Reason, c.Message)
	}
}

// lived does something, and the same with a process that dies at each of its writes.
func (r *runState) lived(do func(*runState) error) {
	before := r.copy()
	if err := do(r); err != nil {
		fmt.Fprintln(&r.output, "error:", err)
	}
	for at := range r.writes - before.writes {
		for _, behind := range []bool{false, true} {
			dies := before.copy()
			dies.die, dies.behind = dies.writes+at, behind
			saved := dies.run.DeepCopy()
			dies.saved = saved
			if err := do(dies); !errors.Is(err, errCrashed) {
				r.t.Errorf("no death at write %d: %v", at, err)
			}
			dies.run, dies.die = dies.saved, -1
			if err := do(dies); err != nil {
				r.t.Errorf("after a death at write %d: %v", at, err)
			}
			if diff := cmp.Diff(r.facts(), dies.facts()); diff != "" {
				r.t.Errorf("after a death at write %d (behind it: %v):\n%s", at, behind, diff)
			}
		}
	}
}

// copy is the state so far, with an output of its own.
func (r *runState) copy() *runState {
	c := *r
	c.output = strings.Builder{}
	c.run, c.objects = r.run.DeepCopy(), map[string]*unstructured.Unstructured{}
	for name, o := range r.objects {
		c.objects[name] = o.DeepCopy()
	}
	return &c
}

// facts are the run and the objects.
func (r *runState) facts() []any {
	objects := map[string]any{}
	for name, o := range r.objects {
		objects[name] = o.Object
	}
	return []any{r.run.Status, objects}
}

// dies counts a write, and reports whether the process dies at it on this side.
func (r *runState) dies(behind bool) bool {
	if !behind {
		r.writes++
	}
	return r.die == r.writes-1 && r.behind == behind
}

func (r *runState) nameOf(d *datadriven.TestData) string {
	return chain.ObjectName(r.run, d.CmdArgs[0].Key)
}

func (r *runState) object(d *datadriven.TestData) *unstructured.Unstructured {
	o, ok := r.objects[r.nameOf(d)]
	if !ok {
		d.Fatalf(r.t, "step %s has no object", d.CmdArgs[0].Key)
	}
	return o
}

// status sets the status of a step's object, seen at its generation.
func (r *runState) status(d *datadriven.TestData) {
	o := r.object(d)
	status := map[string]any{}
	r.parse(d.Input, &status)
	status["observedGeneration"] = o.GetGeneration()
	o.Object["status"] = status
	touch(o)
}

func touch(o *unstructured.Unstructured) {
	var version int
	_, _ = fmt.Sscan(o.GetResourceVersion(), &version)
	o.SetResourceVersion(fmt.Sprint(version + 1))
}

func (r *runState) save(_ context.Context, run *v1alpha1.RepairRun) error {
	if r.dies(false) {
		return errCrashed
	}
	b, err := json.Marshal(run) // what is saved is what JSON keeps
	if err != nil {
		return err
	}
	var kept v1alpha1.RepairRun
	if err := json.Unmarshal(b, &kept); err != nil {
		return err
	}
	*run = kept
	r.saved = run.DeepCopy()
	if r.dies(true) {
		return errCrashed
	}
	return nil
}

func (r *runState) resources(kind schema.GroupVersionKind, namespace string) (work.Resource, error) {
	return resource{r, kind, namespace}, nil
}

// resource is the API server, as far as objects of steps need it.
type resource struct {
	*runState
	kind      schema.GroupVersionKind
	namespace string
}

func (r resource) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if r.unreadable {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, name, errors.New("no right to get"))
	}
	o, ok := r.objects[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return o.DeepCopy(), nil
}

func (r resource) Create(_ context.Context, o *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if o.GetNamespace() != r.namespace || o.GroupVersionKind() != r.kind {
		r.t.Errorf("%s in %q is made as %s in %q", o.GroupVersionKind(), o.GetNamespace(), r.kind, r.namespace)
	}
	if r.dies(false) {
		return nil, errCrashed
	}
	r.uids++
	o = o.DeepCopy()
	o.SetUID(types.UID(fmt.Sprint("uid-", r.uids)))
	o.SetGeneration(1)
	o.SetResourceVersion("1")
	r.objects[o.GetName()] = o
	fmt.Fprintf(&r.output, "created %s %s\n", o.GetKind(), text(o.Object["spec"]))
	if r.dies(true) {
		return nil, errCrashed
	}
	return o, nil
}

func (r resource) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	if r.dies(false) {
		return nil, errCrashed
	}
	o := r.objects[name]
	var change map[string]any
	if err := json.Unmarshal(data, &change); err != nil {
		return nil, err
	}
	merge(o.Object, change)
	if spec, ok := change["spec"]; ok {
		o.SetGeneration(o.GetGeneration() + 1)
		fmt.Fprintf(&r.output, "patched %s %s\n", o.GetKind(), text(spec))
	} else {
		fmt.Fprintf(&r.output, "told %s %s\n", o.GetKind(), text(change["metadata"]))
	}
	touch(o)
	if r.dies(true) {
		return nil, errCrashed
	}
	return o, nil
}

// Delete removes an object, unless a finalizer keeps it.
func (r resource) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	if r.dies(false) {
		return errCrashed
	}
	o := r.objects[name]
	if *options.Preconditions.UID != o.GetUID() {
		r.t.Errorf("%s is deleted under another uid", name)
	}
	fmt.Fprintf(&r.output, "deleted %s %s\n", o.GetKind(), text(o.Object["spec"]))
	if len(o.GetFinalizers()) == 0 {
		delete(r.objects, name)
	} else {
		at := metav1.NewTime(r.now)
		o.SetDeletionTimestamp(&at)
	}
	if r.dies(true) {
		return errCrashed
	}
	return nil
}

// merge is RFC 7396.
func merge(target, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(target, k)
		case map[string]any:
			inner, ok := target[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			merge(inner, v)
			target[k] = inner
		default:
			target[k] = v
		}
	}
}
