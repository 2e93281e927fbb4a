package janitor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

const dcgm = "nvidia.com/gpu.deploy.dcgm"

// operator plays the GPU operator and the kubelet of one node with one service, and
// the Job controller: what a step of it finds, it does.
type operator struct {
	t         *testing.T
	cluster   *localcluster.Cluster
	node      string
	namespace string // of the services and the Jobs
	// jobs are the uids of all Jobs that were ever seen.
	jobs map[types.UID]bool
	// jobObserved reports whether the janitor has seen its Job: no Job ends before.
	jobObserved bool
	// under is whether a service was up while a Job ran.
	under bool
}

func (o *operator) step() {
	o.t.Helper()
	ctx, pods := o.t.Context(), o.cluster.Client().CoreV1().Pods(o.namespace)
	node, err := o.cluster.Client().CoreV1().Nodes().Get(ctx, o.node, metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	_, err = pods.Get(ctx, "dcgm", metav1.GetOptions{})
	up := err == nil
	switch wanted := node.Labels[dcgm] == "true"; {
	case wanted && apierrors.IsNotFound(err):
		o.start()
	case !wanted && up:
		if err := pods.Delete(ctx, "dcgm", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); client.IgnoreNotFound(err) != nil {
			o.t.Fatal(err)
		}
	}
	o.work(up)
}

// start makes a pod that is Ready.
func (o *operator) start() {
	o.t.Helper()
	ctx, pods := o.t.Context(), o.cluster.Client().CoreV1().Pods(o.namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "dcgm", Labels: map[string]string{"app": "nvidia-dcgm"}},
		Spec:       corev1.PodSpec{NodeName: o.node, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
	ready := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := pods.Patch(ctx, "dcgm", types.MergePatchType, ready, metav1.PatchOptions{}, "status"); err != nil {
		o.t.Fatal(err)
	}
}

// work ends every Job that runs.
func (o *operator) work(up bool) {
	o.t.Helper()
	jobs := o.cluster.Client().BatchV1().Jobs(o.namespace)
	list, err := jobs.List(o.t.Context(), metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, job := range list.Items {
		o.jobs[job.UID] = true
		if len(job.Status.Conditions) > 0 {
			continue
		}
		if o.under = o.under || up; !o.jobObserved {
			continue
		}
		now := metav1.Now()
		job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
		for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		if _, err := jobs.UpdateStatus(o.t.Context(), &job, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			o.t.Fatal(err)
		}
	}
}

// newOperator makes a node with its service, in a namespace of its own.
func newOperator(t *testing.T, cluster *localcluster.Cluster) *operator {
	t.Helper()
	install(t, cluster)
	name := cluster.Namespace(t)
	labels := map[string]string{dcgm: "true", "nvidia.com/gpu.deploy.dcgm-exporter": "false"}
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-1", Labels: labels}); err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, cluster: cluster, node: name, namespace: name, jobs: map[types.UID]bool{}}
	o.step()
	return o
}

// resets asks for a reset and waits for its end.
func (o *operator) resets(over func() bool) *v1alpha1.GPUReset {
	o.t.Helper()
	objects, err := reconciler.Objects(o.cluster.RESTConfig())
	if err != nil {
		o.t.Fatal(err)
	}
	object := &v1alpha1.GPUReset{ObjectMeta: metav1.ObjectMeta{Name: o.node}, Spec: v1alpha1.GPUResetSpec{NodeName: o.node}}
	if err := objects.Create(o.t.Context(), object); err != nil {
		o.t.Fatal(err)
	}
	eventually(o.t, "the reset", func() bool {
		o.step()
		if err := objects.Get(o.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			o.t.Fatal(err)
		}
		o.jobObserved = object.Status.JobRef != nil && object.Status.JobRef.UID != ""
		return object.Status.CompletionTime != nil && len(object.Finalizers) == 0 && over()
	})
	return object
}

// audit looks at what a reset must have left.
func (o *operator) audit(object *v1alpha1.GPUReset) {
	o.t.Helper()
	if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionComplete) || object.Status.Phase != v1alpha1.GPUResetSucceeded {
		o.t.Errorf("it ended as %+v", object.Status)
	}
	if len(o.jobs) != 1 || o.under {
		o.t.Errorf("%d jobs, one under a service that was up: %t; want 1, and none", len(o.jobs), o.under)
	}
	node, err := o.cluster.Client().CoreV1().Nodes().Get(o.t.Context(), o.node, metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	_, plugin := node.Labels["nvidia.com/gpu.deploy.device-plugin"]
	if node.Labels[dcgm] != "true" || node.Labels["nvidia.com/gpu.deploy.dcgm-exporter"] != "false" || plugin {
		o.t.Errorf("labels are %v", node.Labels)
	}
	if node.Annotations[nodemark.RepairAnnotation] != "" || node.Annotations[nodemark.ResetAnnotation] != "" {
		o.t.Errorf("marks are left: %v", node.Annotations)
	}
}

// The whole binary, without a plugin: its watches of Nodes, pods and Jobs enqueue it, since
// the clock does not.
func TestJanitorResetsGPUs(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	o := newOperator(t, cluster)
	running := daemon.RunForTest(t, "janitor", defaultConfig(), build,
		"--config", o.configuration("1h"), "--kubeconfig", cluster.AdminKubeconfig())
	o.audit(o.resets(func() bool { return true }))
	_, metrics := get(t, "http://"+running.Address+"/metrics")
	for _, want := range []string{
		`janitor_actions_count{action_type="gpureset",status="started"} 1`, `janitor_actions_count{action_type="gpureset",status="succeeded"} 1`,
		`gpu_reset_duration_seconds_count 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// configuration is a file of a janitor that resets GPUs and nothing else.
func (o *operator) configuration(poll string) string {
	o.t.Helper()
	file := filepath.Join(o.t.TempDir(), "janitor.toml")
	text := fmt.Sprintf(`
[rebootNodeController]
enabled = false
[terminateNodeController]
enabled = false
[gpuResetController]
enabled = true
pollInterval = %q
serviceManager.namespace = %q
resetJob = {image = "example.com/gpu-reset:1", namespace = %q}
`, poll, o.namespace, o.namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return file
}
