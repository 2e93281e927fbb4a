package gpureset

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

var testPolicy = reset.Policy{
	Policy:          repair.Policy{Timeout: 25 * time.Minute, Poll: 15 * time.Second},
	TeardownTimeout: 5 * time.Minute, RestoreTimeout: 10 * time.Minute, JobTimeout: 5 * time.Minute,
}

// world is an API server, the GPU operator and the janitor of one test.
type world struct {
	t         *testing.T
	cluster   *localcluster.Cluster
	objects   client.Client
	clock     *clocktesting.FakeClock
	policy    reset.Policy
	logs      bytes.Buffer
	metrics   *prometheus.Registry
	namespace string // of the GPU services and the Jobs
	prefix    string
	// crash is the point at which the process dies.
	crash   string
	janitor *Reconciler
	// created counts the Jobs, by uid.
	created map[types.UID]bool
}

// crds applies the definitions once per cluster.
var crds sync.Once

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	crds.Do(func() {
		for _, kind := range []string{"gpuresets", "rebootnodes"} {
			text, err := os.ReadFile(filepath.Join("../../../distros/helm/nvsentinel/crds", "janitor.dgxc.nvidia.com_"+kind+".yaml"))
			if err == nil {
				err = cluster.Apply(t.Context(), bytes.NewReader(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	w := &world{
		t: t, cluster: cluster, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), policy: testPolicy,
		namespace: cluster.Namespace(t), created: map[types.UID]bool{},
	}
	w.prefix = w.namespace + "-"
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	w.objects = objects
	w.restart()
	return w
}

// restart is a new janitor process.
func (w *world) restart() {
	w.metrics = prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(&w.logs, nil))
	w.janitor = New(w.policy, Deps{
		Deps: reconciler.Deps{
			Objects: w.objects, Nodes: w.cluster.Client(), Clock: w.clock, Log: log,
			Excluded: []labels.Selector{labels.SelectorFromSet(labels.Set{"pool": "control"})},
			Events:   eventrecorder.New(w.cluster.Client(), eventrecorder.Component("janitor"), w.clock, log, w.metrics),
			Metrics:  reconciler.NewMetrics(w.metrics),
		},
		Resets:   NewMetrics(w.metrics),
		Services: GPUOperator(w.namespace),
		Tool:     Tool{Namespace: w.namespace, Image: "example.com/gpu-reset:1", DriverRoot: "/run/nvidia/driver", Deadline: 5 * time.Minute},
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

// reconcile is one pass over an object. A crash ends the process and starts a new
// one; died shows that.
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

func (w *world) annotate(node string, annotations map[string]any) {
	w.t.Helper()
	w.patchNode(node, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// label sets labels of a Node; nil removes one.
func (w *world) label(node string, values map[string]any) {
	w.t.Helper()
	w.patchNode(node, map[string]any{"metadata": map[string]any{"labels": values}})
}

// quarantine marks a Node as fault-quarantine does.
func (w *world) quarantine(node, session string) {
	w.t.Helper()
	w.annotate(node, map[string]any{nodemark.SessionAnnotation: session})
	w.patchNode(node, map[string]any{"spec": map[string]any{"unschedulable": true}})
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(w.t.Context(), w.prefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

// create makes an object; an empty session makes a person's, without gpus it is for
// all.
func (w *world) create(name, node, session string, gpus ...string) *v1alpha1.GPUReset {
	w.t.Helper()
	object := &v1alpha1.GPUReset{
		ObjectMeta: metav1.ObjectMeta{Name: w.prefix + name}, Spec: v1alpha1.GPUResetSpec{NodeName: w.prefix + node},
	}
	if len(gpus) > 0 {
		object.Spec.Selector = &v1alpha1.GPUSelector{UUIDs: gpus}
	}
	if session != "" {
		object.Annotations = map[string]string{nodemark.SessionAnnotation: session}
	}
	if err := w.objects.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	left := &v1alpha1.GPUReset{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
	w.t.Cleanup(func() {
		ctx := context.Background()
		_ = w.objects.Patch(ctx, left, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = w.objects.Delete(ctx, left)
	})
	return object
}

// object reads an object; nil when it is gone.
func (w *world) object(name string) *v1alpha1.GPUReset {
	w.t.Helper()
	object := &v1alpha1.GPUReset{}
	err := w.objects.Get(w.t.Context(), client.ObjectKey{Name: w.prefix + name}, object)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

// operate does what the GPU operator's DaemonSets and kubelets do on a node: a pod
// for each service whose label is "true", none for the others.
func (w *world) operate(node string, ready bool) {
	w.t.Helper()
	n, pods := w.node(node), w.cluster.Client().CoreV1().Pods(w.namespace)
	for _, app := range GPUOperator("").Apps {
		name := w.prefix + node + "-" + app.Name
		if n.Labels[app.Label] != "true" {
			err := pods.Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			if client.IgnoreNotFound(err) != nil {
				w.t.Fatal(err)
			}
			continue
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app.Name}},
			Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
		}
		if _, err := pods.Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		}})
		if err == nil {
			_, err = pods.Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// job reads the Job of an object; nil when there is none.
func (w *world) job(name string) *batchv1.Job {
	w.t.Helper()
	job, err := w.cluster.Client().BatchV1().Jobs(w.namespace).Get(w.t.Context(), w.prefix+name+"-reset-job", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// end ends the Job of an object as the Job controller does.
func (w *world) end(name string, in batchv1.JobConditionType, reason string) {
	w.t.Helper()
	job, now := w.job(name), metav1.NewTime(w.clock.Now())
	before := batchv1.JobSuccessCriteriaMet
	if in == batchv1.JobFailed {
		before = batchv1.JobFailureTarget
	}
	for _, c := range []batchv1.JobConditionType{before, in} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: c, Status: corev1.ConditionTrue, Reason: reason, Message: "so it is", LastTransitionTime: now, LastProbeTime: now,
		})
	}
	job.Status.StartTime = &now
	if in == batchv1.JobComplete {
		job.Status.CompletionTime, job.Status.Succeeded = &now, 1
	}
	if _, err := w.cluster.Client().BatchV1().Jobs(w.namespace).UpdateStatus(w.t.Context(), job, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeJob(name string) {
	w.t.Helper()
	err := w.cluster.Client().BatchV1().Jobs(w.namespace).Delete(w.t.Context(), w.prefix+name+"-reset-job", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
