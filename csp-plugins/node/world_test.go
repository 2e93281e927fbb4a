package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// asPlugin in the environment makes the test binary the plugin, so that it can be killed.
const asPlugin = "TEST_RUN_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	os.Exit(localcluster.Main(m))
}

// world is a cluster's namespace with two nodes, whose kubelets it simulates, and the plugin
// as a process.
type world struct {
	cluster   *localcluster.Cluster
	namespace string
	dir       string
	cmd       *exec.Cmd
	output    testkit.Output
	extra     []string

	mu      sync.Mutex
	reboots map[string]int // by node
	// dead are the nodes whose kubelets start nothing.
	dead map[string]bool
}

func newWorld(t *testing.T, extra ...string) *world {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	dir, err := os.MkdirTemp("", "node") // the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{cluster: cluster, namespace: cluster.Namespace(t), dir: dir, extra: extra, reboots: map[string]int{}, dead: map[string]bool{}}
	for _, node := range []string{w.node("a"), w.node("b")} {
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: node, BootID: "boot-0"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var kubelets sync.WaitGroup
	kubelets.Go(func() { w.kubelets(ctx, t) })
	t.Cleanup(func() { cancel(); kubelets.Wait(); w.kill(t) })
	return w
}

func (w *world) node(name string) string { return w.namespace + "-" + name }

// kubelets runs the Jobs that appear: each Pod once, as the Job controller and the kubelets
// do.
func (w *world) kubelets(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		jobs, err := w.cluster.Client().BatchV1().Jobs(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue // the end of the test, or the next time
		}
		for i := range jobs.Items {
			if err := w.step(ctx, &jobs.Items[i]); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}
}

// step creates the Pod of a Job and, if its kubelet works, runs it.
func (w *world) step(ctx context.Context, job *batchv1.Job) error {
	w.mu.Lock()
	dead := w.dead[job.Spec.Template.Spec.NodeName]
	w.mu.Unlock()
	pods := w.cluster.Client().CoreV1().Pods(w.namespace)
	pod, err := pods.Get(ctx, job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: job.Name, Namespace: w.namespace, Labels: job.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Spec: job.Spec.Template.Spec,
		}, metav1.CreateOptions{})
	}
	if err != nil || dead || len(pod.Status.ContainerStatuses) > 0 {
		return err
	}
	return w.run(ctx, pod)
}

// run does what the program does: it starts, reboots the machine of the order, and is gone.
func (w *world) run(ctx context.Context, pod *corev1.Pod) error {
	values := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		values[v.Name] = v.Value
	}
	o, err := order.Parse(func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	if err := w.status(ctx, pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}); err != nil {
		return err
	}
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if why, nothing := o.Check(node.Status.NodeInfo.BootID, time.Now()); nothing {
		return w.end(ctx, pod, int32(why.Code()))
	}
	w.mu.Lock()
	w.reboots[o.Node]++
	boot := fmt.Sprintf("boot-%d", w.reboots[o.Node])
	w.mu.Unlock()
	if err := w.boot(ctx, o.Node, boot); err != nil {
		return err
	}
	return w.end(ctx, pod, 137)
}

func (w *world) end(ctx context.Context, pod *corev1.Pod, code int32) error {
	return w.status(ctx, pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: metav1.Now()}})
}

func (w *world) status(ctx context.Context, pod *corev1.Pod, state corev1.ContainerState) error {
	pods := w.cluster.Client().CoreV1().Pods(w.namespace)
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now.Status.Phase = corev1.PodRunning
	now.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: program, State: state}}
	_, err = pods.UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err
}

// boot lets a Node show a boot ID.
func (w *world) boot(ctx context.Context, node, id string) error {
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, id)
	_, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (w *world) bootID(t *testing.T, node string) string {
	t.Helper()
	n, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.NodeInfo.BootID
}

func (w *world) rebooted(_ *testing.T, node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reboots[node]
}

// jobs are the Jobs of the namespace.
func (w *world) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	jobs, err := w.cluster.Client().BatchV1().Jobs(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return jobs.Items
}

func (w *world) start(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	socket := "unix://" + filepath.Join(w.dir, "s")
	w.cmd = exec.Command(os.Args[0], append([]string{
		"--kubeconfig", w.cluster.AdminKubeconfig(), "--metrics-address", "off", "--listen", socket, "--plaintext",
		"--allow-unauthenticated", "--namespace", w.namespace, "--image", "example.com/csp-plugin-node:1",
	}, w.extra...)...)
	w.cmd.Env = append(os.Environ(), asPlugin+"=1")
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := testkit.StartChild(w.cmd); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kill ends it as a power cut would.
func (w *world) kill(t *testing.T) {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	w.cmd = nil
	if t.Failed() {
		t.Logf("the log of the plugin:\n%s", w.output.String())
	}
}
