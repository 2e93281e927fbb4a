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

// life is one run with its objects. Before each pass the run is what was saved last,
// as a controller that has just started finds it.
type life struct {
	t         *testing.T
	run       *v1alpha1.RepairRun
	chain     *chain.Chain
	templates map[string]*chain.Template
	problems  map[string]string
	objects   map[string]*unstructured.Unstructured
	uids      int
	now       time.Time
	told      strings.Builder
	// writes of objects and of the run, and the one at which the process dies, before
	// it or behind it; -1 is none.
	writes, die int
	behind      bool
	saved       *v1alpha1.RepairRun
	// unreadable: no object can be read just now.
	unreadable bool
}

var errDied = errors.New("died")

// TestLives tells runs as text. Each life is told again with a process that dies behind
// every write, which must change nothing but the number of passes.
func TestLives(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		l := newLife(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { l.t = t; return l.do(d) })
	})
}

func newLife(t *testing.T) *life {
	return &life{
		t: t, templates: map[string]*chain.Template{}, problems: map[string]string{}, objects: map[string]*unstructured.Unstructured{}, now: testkit.Start, die: -1,
		run: &v1alpha1.RepairRun{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu-1-x", UID: "run"},
			Spec: v1alpha1.RepairRunSpec{NodeName: "gpu-1", Chain: "c", Fault: v1alpha1.Fault{
				Record: "r1", Session: "s1", Action: "RESTART_VM", ErrorCode: []string{"79"}, Message: "GPU: \"fell\" off\nthe bus",
			}},
		},
	}
}

func (l *life) do(d *datadriven.TestData) string {
	l.told.Reset()
	switch d.Cmd {
	case "template":
		l.template(d)
	case "chain":
		var spec v1alpha1.RepairChainSpec
		l.parse(d.Input, &spec)
		c, err := chain.Compile(spec)
		if err != nil {
			return err.Error() + "\n"
		}
		l.chain, l.run.Status = c, chain.Begin("gpu-1", spec)
	case "pass":
		l.pass(d)
	case "status":
		l.status(d)
	case "edit":
		o := l.object(d)
		var change map[string]any
		l.parse(d.Input, &change)
		before := text(o.Object["spec"])
		merge(o.Object, change)
		if text(o.Object["spec"]) != before {
			o.SetGeneration(o.GetGeneration() + 1)
		}
		touch(o)
	case "delete":
		delete(l.objects, l.nameOf(d))
	case "foreign": // somebody else's object has the name of the step's
		o := &unstructured.Unstructured{}
		o.SetName(l.nameOf(d))
		o.SetUID("foreign")
		l.objects[o.GetName()] = o
	case "giveup":
		l.run.Annotations = map[string]string{v1alpha1.TimedOutAnnotation: l.now.Format(time.RFC3339)}
	case "remove":
		l.lived(func(l *life) error {
			gone, err := work.Worker{Resources: l.resources}.Remove(context.Background(), l.run)
			if gone {
				l.told.WriteString("all are gone\n")
			}
			return err
		})
	case "show":
		b, err := yaml.Marshal(l.object(d).Object)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(b)
	default:
		d.Fatalf(l.t, "unknown command %s", d.Cmd)
	}
	return l.told.String()
}

func (l *life) parse(text string, into any) {
	l.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) template(d *datadriven.TestData) {
	t := &v1alpha1.RepairTemplate{ObjectMeta: metav1.ObjectMeta{Name: d.CmdArgs[0].Key}}
	var spec map[string]any
	l.parse(d.Input, &spec)
	if object, ok := spec["template"]; ok {
		t.Spec.Template = runtime.RawExtension{Raw: []byte(text(object))}
		delete(spec, "template")
	}
	rest := t.Spec.Template
	l.parse(text(spec), &t.Spec)
	t.Spec.Template = rest
	compiled, err := chain.CompileTemplate(t)
	delete(l.templates, t.Name)
	delete(l.problems, t.Name)
	if err != nil {
		l.problems[t.Name] = err.Error()
		fmt.Fprintln(&l.told, err)
		return
	}
	l.templates[t.Name] = compiled
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// pass takes the run as far as it goes, after the same with a process that dies.
func (l *life) pass(d *datadriven.TestData) {
	w := chain.Facts{Session: "s1", Templates: l.templates, Problems: l.problems}
	l.unreadable = d.HasArg("unreadable")
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "session":
			w.Session = a.Vals[0]
		case "brake":
			w.Brake = a.Vals[0]
		case "unread":
			w.Unread = true
		case "excluded":
			w.Excluded = true
		case "unreadable":
		default:
			by, err := time.ParseDuration(strings.TrimPrefix(a.Key, "+"))
			if err != nil {
				d.Fatalf(l.t, "%v", err)
			}
			l.now = l.now.Add(by)
		}
	}
	w.Now = l.now
	l.lived(func(l *life) error {
		return work.Worker{Resources: l.resources, Save: l.save}.Pass(context.Background(), l.run, l.chain, w)
	})
	for _, s := range l.run.Status.Steps {
		fmt.Fprintf(&l.told, "%s %s %s", s.Name, s.State, s.Reason)
		if s.Message != "" {
			fmt.Fprintf(&l.told, ": %s", s.Message)
		}
		for _, o := range s.Outputs {
			fmt.Fprintf(&l.told, "; %s=%s", o.Name, o.Value)
		}
		for word, is := range map[string]bool{"; stale": s.Stale, "; drifted": s.Drifted} {
			if is {
				l.told.WriteString(word)
			}
		}
		l.told.WriteString("\n")
	}
	if c := meta.FindStatusCondition(l.run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		fmt.Fprintf(&l.told, "= %s %s: %s\n", c.Status, c.Reason, c.Message)
	}
}

// lived does something, and the same with a process that dies at each of its writes.
func (l *life) lived(do func(*life) error) {
	before := l.copy()
	if err := do(l); err != nil {
		fmt.Fprintln(&l.told, "error:", err)
	}
	for at := range l.writes - before.writes {
		for _, behind := range []bool{false, true} {
			dies := before.copy()
			dies.die, dies.behind = dies.writes+at, behind
			saved := dies.run.DeepCopy()
			dies.saved = saved
			if err := do(dies); !errors.Is(err, errDied) {
				l.t.Errorf("no death at write %d: %v", at, err)
			}
			dies.run, dies.die = dies.saved, -1
			if err := do(dies); err != nil {
				l.t.Errorf("after a death at write %d: %v", at, err)
			}
			if diff := cmp.Diff(l.facts(), dies.facts()); diff != "" {
				l.t.Errorf("after a death at write %d (behind it: %v):\n%s", at, behind, diff)
			}
		}
	}
}

// copy is the life so far; what it tells is nobody's.
func (l *life) copy() *life {
	c := *l
	c.told = strings.Builder{}
	c.run, c.objects = l.run.DeepCopy(), map[string]*unstructured.Unstructured{}
	for name, o := range l.objects {
		c.objects[name] = o.DeepCopy()
	}
	return &c
}

// facts are the run and the objects.
func (l *life) facts() []any {
	objects := map[string]any{}
	for name, o := range l.objects {
		objects[name] = o.Object
	}
	return []any{l.run.Status, objects}
}

// dies counts a write, and says whether the process dies at it on this side.
func (l *life) dies(behind bool) bool {
	if !behind {
		l.writes++
	}
	return l.die == l.writes-1 && l.behind == behind
}

func (l *life) nameOf(d *datadriven.TestData) string {
	return chain.ObjectName(l.run, d.CmdArgs[0].Key)
}

func (l *life) object(d *datadriven.TestData) *unstructured.Unstructured {
	o, ok := l.objects[l.nameOf(d)]
	if !ok {
		d.Fatalf(l.t, "step %s has no object", d.CmdArgs[0].Key)
	}
	return o
}

// status sets the status of a step's object, seen at its generation.
func (l *life) status(d *datadriven.TestData) {
	o := l.object(d)
	status := map[string]any{}
	l.parse(d.Input, &status)
	status["observedGeneration"] = o.GetGeneration()
	o.Object["status"] = status
	touch(o)
}

func touch(o *unstructured.Unstructured) {
	var version int
	_, _ = fmt.Sscan(o.GetResourceVersion(), &version)
	o.SetResourceVersion(fmt.Sprint(version + 1))
}

func (l *life) save(_ context.Context, run *v1alpha1.RepairRun) error {
	if l.dies(false) {
		return errDied
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
	l.saved = run.DeepCopy()
	if l.dies(true) {
		return errDied
	}
	return nil
}

func (l *life) resources(kind schema.GroupVersionKind, namespace string) (work.Resource, error) {
	return resource{l, kind, namespace}, nil
}

// resource is the API server, as far as objects of steps need it.
type resource struct {
	*life
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
		return nil, errDied
	}
	r.uids++
	o = o.DeepCopy()
	o.SetUID(types.UID(fmt.Sprint("uid-", r.uids)))
	o.SetGeneration(1)
	o.SetResourceVersion("1")
	r.objects[o.GetName()] = o
	fmt.Fprintf(&r.told, "created %s %s\n", o.GetKind(), text(o.Object["spec"]))
	if r.dies(true) {
		return nil, errDied
	}
	return o, nil
}

func (r resource) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	if r.dies(false) {
		return nil, errDied
	}
	o := r.objects[name]
	var change map[string]any
	if err := json.Unmarshal(data, &change); err != nil {
		return nil, err
	}
	merge(o.Object, change)
	if spec, ok := change["spec"]; ok {
		o.SetGeneration(o.GetGeneration() + 1)
		fmt.Fprintf(&r.told, "patched %s %s\n", o.GetKind(), text(spec))
	} else {
		fmt.Fprintf(&r.told, "told %s %s\n", o.GetKind(), text(change["metadata"]))
	}
	touch(o)
	if r.dies(true) {
		return nil, errDied
	}
	return o, nil
}

// Delete removes an object, unless a finalizer keeps it.
func (r resource) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	if r.dies(false) {
		return errDied
	}
	o := r.objects[name]
	if *options.Preconditions.UID != o.GetUID() {
		r.t.Errorf("%s is deleted under another uid", name)
	}
	fmt.Fprintf(&r.told, "deleted %s %s\n", o.GetKind(), text(o.Object["spec"]))
	if len(o.GetFinalizers()) == 0 {
		delete(r.objects, name)
	} else {
		at := metav1.NewTime(r.now)
		o.SetDeletionTimestamp(&at)
	}
	if r.dies(true) {
		return errDied
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
