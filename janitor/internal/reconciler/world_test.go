package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

var testPolicy = repair.Policy{Timeout: 25 * time.Minute, ResendAfter: 10 * time.Minute, Poll: 15 * time.Second}

// fakePlugin is a plugin in this process that records its calls.
type fakePlugin struct {
	mu       sync.Mutex
	signals  []provider.Signal
	verbs    []string // of the signals
	requests []string
	// refuse is the next answers to signals; nil takes them.
	answers []error
	// state is the answer to State.
	state    provider.State
	stateErr error
	// onSignal is called during a signal.
	onSignal func(provider.Signal)
}

func (f *fakePlugin) Reboot(ctx context.Context, s provider.Signal) (string, error) {
	return f.signal(ctx, "reboot", s)
}

func (f *fakePlugin) Terminate(ctx context.Context, s provider.Signal) (string, error) {
	return f.signal(ctx, "terminate", s)
}

func (f *fakePlugin) signal(_ context.Context, verb string, s provider.Signal) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onSignal != nil {
		f.onSignal(s)
	}
	f.signals, f.verbs = append(f.signals, s), append(f.verbs, verb)
	if len(f.answers) > 0 {
		err := f.answers[0]
		f.answers = f.answers[1:]
		if err != nil {
			return "", err
		}
	}
	return "request-" + s.Node, nil
}

func (f *fakePlugin) State(_ context.Context, node, requestID string) (provider.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, node+" "+requestID)
	return f.state, f.stateErr
}

func (f *fakePlugin) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.signals)
}

// world is an API server, a plugin and the janitor of one test.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	objects client.Client
	clock   *clocktesting.FakeClock
	plugin  *fakePlugin
	policy  repair.Policy
	logs    bytes.Buffer
	metrics *prometheus.Registry
	// crash is the point at which the process dies.
	crash   string
	janitor *Reconciler
	// kind is what the next objects and passes are about.
	kind   Kind
	prefix string
}

// crds applies the definitions once per cluster.
var crds sync.Once

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	crds.Do(func() {
		files, err := filepath.Glob("../../../distros/helm/nvsentinel/crds/janitor.*.yaml")
		if err != nil || len(files) != 5 {
			t.Fatalf("definitions of the janitor's kinds: %v, %v", files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = cluster.Apply(t.Context(), bytes.NewReader(text))
			}
			if err != nil {
				t.Fatalf("applying %s: %v", file, err)
			}
		}
	})
	w := &world{
		t: t, cluster: cluster, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)),
		plugin: &fakePlugin{state: provider.Up}, kind: RebootNode(), policy: testPolicy,
	}
	objects, err := Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	w.objects = objects
	w.prefix = cluster.Namespace(t) + "-" // names of the test's own
	w.restart()
	return w
}

// restart is a new janitor process.
func (w *world) restart() {
	w.metrics = prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(&w.logs, nil))
	w.janitor = New(w.kind, w.policy, w.plugin, Deps{
		Objects: w.objects, Nodes: w.cluster.Client(), Clock: w.clock,
		Excluded: []labels.Selector{labels.SelectorFromSet(labels.Set{"pool": "control"})},
		Events:   eventrecorder.New(w.cluster.Client(), eventrecorder.Component("janitor"), w.clock, log, w.metrics),
		Log:      log, Metrics: NewMetrics(w.metrics),
	})
	w.janitor.Here = func(point string) {
		if point == w.crash {
			w.crash = ""
			panic(crashed(point))
		}
	}
}

// crashed is the panic that stands for the death of the process.
type crashed string

// reconcile is one pass over an object. A crash ends the process and starts a
// new one; died shows that.
func (w *world) reconcile(name string) (result ctrl.Result, died bool, err error) {
	w.t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if _, planned := p.(crashed); !planned {
				panic(p)
			}
			died = true
			w.restart()
		}
	}()
	result, err = w.janitor.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: w.prefix + name}})
	return result, false, err
}

func (w *world) addNode(spec localcluster.NodeSpec) {
	w.t.Helper()
	spec.Name = w.prefix + spec.Name
	if _, err := w.cluster.AddNode(w.t.Context(), spec); err != nil {
		w.t.Fatal(err)
	}
}

// patchNode merges a patch into a Node; status goes to the subresource.
func (w *world) patchNode(name string, patch map[string]any, subresource ...string) {
	w.t.Helper()
	b, err := json.Marshal(patch)
	if err != nil {
		w.t.Fatal(err)
	}
	kind := types.MergePatchType
	if len(subresource) > 0 {
		kind = types.StrategicMergePatchType
	}
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(w.t.Context(), w.prefix+name, kind, b, metav1.PatchOptions{}, subresource...); err != nil {
		w.t.Fatal(err)
	}
}

// annotate sets annotations of a Node; nil removes one.
func (w *world) annotate(node string, annotations map[string]any) {
	w.t.Helper()
	w.patchNode(node, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// boot shows another boot id.
func (w *world) boot(node, boot string) {
	w.t.Helper()
	w.patchNode(node, map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"bootID": boot}}}, "status")
}

func (w *world) setReady(node string, ready bool) {
	w.t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	w.patchNode(node, map[string]any{"status": map[string]any{
		"conditions": []map[string]any{{"type": "Ready", "status": status}},
	}}, "status")
}

// quarantine marks a Node as fault-quarantine does.
func (w *world) quarantine(node, session string) {
	w.t.Helper()
	w.annotate(node, map[string]any{nodemark.SessionAnnotation: session})
	w.cordon(node, true)
}

func (w *world) cordon(node string, on bool) {
	w.t.Helper()
	w.patchNode(node, map[string]any{"spec": map[string]any{"unschedulable": on}})
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(w.t.Context(), w.prefix+name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

// create makes an object of the kind; an empty session makes a person's.
func (w *world) create(name, node, session string) v1alpha1.Repair {
	w.t.Helper()
	object := w.kind.object()
	switch o := object.(type) {
	case *v1alpha1.RebootNode:
		o.Spec.NodeName = w.prefix + node
	case *v1alpha1.TerminateNode:
		o.Spec.NodeName = w.prefix + node
	}
	object.SetName(w.prefix + name)
	if session != "" {
		object.SetAnnotations(map[string]string{nodemark.SessionAnnotation: session})
	}
	w.store(object)
	return object
}

// store creates an object and removes it after the test, whatever holds it.
func (w *world) store(object v1alpha1.Repair) {
	w.t.Helper()
	if err := w.objects.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	left := w.kind.object()
	left.SetName(object.GetName())
	w.t.Cleanup(func() {
		ctx := context.Background()
		_ = w.objects.Patch(ctx, left, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = w.objects.Delete(ctx, left)
	})
}

// object reads an object of the kind; nil when it is gone.
func (w *world) object(name string) v1alpha1.Repair {
	w.t.Helper()
	object := w.kind.object()
	err := w.objects.Get(w.t.Context(), client.ObjectKey{Name: w.prefix + name}, object)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.objects.Delete(w.t.Context(), w.object(name)); err != nil {
		w.t.Fatal(err)
	}
}

// failure parses a plugin's answer such as NotSent, Unknown or Refused.
func failure(delivery string) error {
	switch d := provider.Delivery(delivery); d {
	case provider.NotSent, provider.Unknown, provider.Refused:
		return &provider.Error{Delivery: d, Message: "so it is"}
	case "Throttled":
		return &provider.Error{Delivery: provider.NotSent, Message: "so it is", RetryAfter: 10 * time.Second}
	case "Pending":
		return &provider.Error{Delivery: provider.Unknown, Message: "so it is", RetryAfter: 10 * time.Second}
	case "Unresponsive":
		return &provider.Error{Delivery: provider.Refused, Message: "so it is", Unresponsive: true}
	case "NotFound":
		return &provider.Error{Delivery: provider.Refused, Code: codes.NotFound, Message: "so it is"}
	}
	panic(fmt.Sprintf("no delivery %q", delivery))
}
