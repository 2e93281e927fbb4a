package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// waitTimeout is how long something that has to come may take on a machine that stands still.
const waitTimeout = 2 * time.Minute

const charts = "../../../distros/helm/nvsentinel/"

var (
	rebootKind   = schema.GroupVersionKind{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "RebootNode"}
	selfKind     = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}
	deletionKind = schema.GroupVersionKind{Group: "machine-deletion-remediation.medik8s.io", Version: "v1alpha1", Kind: "MachineDeletionRemediation"}
)

// ahead is the wall clock, some time ahead.
type ahead struct {
	clock.RealClock
	by atomic.Int64
}

func (a *ahead) Now() time.Time                  { return a.RealClock.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }
func (a *ahead) step(d time.Duration)            { a.by.Add(int64(d)) }

// world is a cluster with the kinds, and the nodes and checks of one test.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	live    client.Client
	clock   *ahead
	prefix  string // of the test's nodes, and the value of their label pool
	leases  string // namespace
	watch   *Watch // the newest that was started
}

func newWorld(t *testing.T, prefix string) *world {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for _, file := range []string{
		charts + "manifests/crds/remediation.medik8s.io_nodehealthchecks.yaml",
		charts + "crds/janitor.dgxc.nvidia.com_rebootnodes.yaml", charts + "crds/janitor.dgxc.nvidia.com_rebootnodetemplates.yaml",
		"testdata/remediators.yaml",
	} {
		text, err := os.Open(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		_ = text.Close()
	}
	live, err := Live(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, cluster: cluster, live: live, clock: &ahead{}, prefix: prefix, leases: cluster.Namespace(t)}
}

// start runs a reconciler; stop ends it. It ends with the test too.
func (w *world) start(change func(*rest.Config, *Deps), prepared func(*Reconciler)) (stop func()) {
	w.t.Helper()
	config := w.cluster.RESTConfig()
	deps := Deps{
		Claims:  nodelease.Claims{Client: w.cluster.Client(), Namespace: w.leases, Clock: w.clock},
		Workers: 8, Clock: w.clock, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	if change != nil {
		change(config, &deps)
	}
	live, err := Live(config)
	if err != nil {
		w.t.Fatal(err)
	}
	deps.Live = live
	watch := New(config, deps)
	watch.prepared = prepared
	w.watch = watch
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- watch.Run(ctx) }()
	var once atomic.Bool
	stop = func() {
		cancel()
		if once.CompareAndSwap(false, true) {
			if err := <-done; err != nil {
				w.t.Errorf("the watch ended with %v", err)
			}
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// node makes a Ready node of the test.
func (w *world) node(name string) string {
	w.t.Helper()
	name = w.prefix + "-" + name
	_, err := w.cluster.AddNode(w.t.Context(), localcluster.NodeSpec{Name: name, Labels: map[string]string{"pool": w.prefix}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.cluster.DeleteNode(context.WithoutCancel(w.t.Context()), name) })
	return name
}

// ready sets the Ready condition of a node to a status that it has had for an hour.
func (w *world) ready(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	node := &corev1.Node{}
	if err := w.live.Get(w.t.Context(), types.NamespacedName{Name: name}, node); err != nil {
		w.t.Fatal(err)
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.LastTransitionTime = status, metav1.NewTime(w.clock.Now().Add(-time.Hour))
		}
	}
	if err := w.live.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fall(name string) { w.t.Helper(); w.ready(name, corev1.ConditionUnknown) }
func (w *world) heal(name string) { w.t.Helper(); w.ready(name, corev1.ConditionTrue) }

// template makes one of a kind of remediations.
func (w *world) template(kind schema.GroupVersionKind, namespace string) v1alpha1.TemplateReference {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
	o.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "Template"))
	o.SetNamespace(namespace)
	o.SetName(w.prefix)
	if err := w.live.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.live.Delete(context.WithoutCancel(w.t.Context()), o) })
	return v1alpha1.TemplateReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind + "Template", Namespace: namespace, Name: w.prefix}
}

// check makes a NodeHealthCheck of the test's nodes.
func (w *world) check(change func(*v1alpha1.NodeHealthCheckSpec)) string {
	w.t.Helper()
	c := &v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: w.prefix}, Spec: v1alpha1.NodeHealthCheckSpec{
		Selector:   v1alpha1.NodeSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": v1alpha1.LabelValue(w.prefix)}},
		MinHealthy: new(intstr.FromInt32(0)),
	}}
	change(&c.Spec)
	if err := w.live.Create(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.live.Delete(context.WithoutCancel(w.t.Context()), c) })
	return c.Name
}

func (w *world) status(name string) v1alpha1.NodeHealthCheckStatus {
	w.t.Helper()
	c := &v1alpha1.NodeHealthCheck{}
	if err := w.live.Get(w.t.Context(), types.NamespacedName{Name: name}, c); err != nil {
		w.t.Fatal(err)
	}
	return c.Status
}

// settle waits for a status.
func (w *world) settle(name, what string, is func(v1alpha1.NodeHealthCheckStatus) bool) v1alpha1.NodeHealthCheckStatus {
	w.t.Helper()
	var last v1alpha1.NodeHealthCheckStatus
	defer func() {
		if w.t.Failed() {
			text, _ := json.Marshal(last)
			w.t.Logf("while waiting until %s: %s", what, text)
		}
	}()
	testkit.Until(w.t, waitTimeout, func() bool { last = w.status(name); return is(last) })
	return last
}

// objects of a kind for the test's nodes.
func (w *world) objects(kind schema.GroupVersionKind) []unstructured.Unstructured {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := w.live.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	var out []unstructured.Unstructured
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), w.prefix+"-") {
			out = append(out, o)
		}
	}
	return out
}

// report sets a condition of a remediation as its remediator would.
func (w *world) report(o *unstructured.Unstructured, kind string, status metav1.ConditionStatus) {
	w.t.Helper()
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": kind, "status": status, "reason": "Played", "message": "", "lastTransitionTime": metav1.Now(),
	}}}})
	if err := w.live.Status().Patch(w.t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.t.Fatal(err)
	}
}

// poke has a pass made over the checks of a node.
func (w *world) poke(node string) {
	w.t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{"poked": metav1.Now().Format("150405.000000")}}})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := w.live.Patch(w.t.Context(), n, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.t.Fatal(err)
	}
}

func phase(p v1alpha1.Phase) func(v1alpha1.NodeHealthCheckStatus) bool {
	return func(s v1alpha1.NodeHealthCheckStatus) bool { return s.Phase == p }
}

func remediations(n int) func(v1alpha1.NodeHealthCheckStatus) bool {
	return func(s v1alpha1.NodeHealthCheckStatus) bool {
		found := 0
		for _, u := range s.UnhealthyNodes {
			found += len(u.Remediations)
		}
		return found == n
	}
}

// transport is a function as one.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// body reads a request's body and puts it back.
func body(r *http.Request) string {
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	return string(text)
}

// answer is an error of an API server.
func answer(r *http.Request, code int, reason string) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"played by the test"}`, reason, code)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)),
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func update(before, after client.Object) event.UpdateEvent {
	return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
}
