package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestConformance(t *testing.T) {
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := newWorld(t, "--answer-timeout", "1m")
		return &plugintest.Bench{
			Conn: w.start(t), Node: w.node("a"), Other: w.node("b"), Missing: w.node("c"),
			BootID: w.bootID, Reboots: w.rebooted,
			Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
			RebootTimeout: 2 * time.Minute,
		}
	})
}

// send requests a reboot of node a under one key.
func (w *world) send(t *testing.T, client v1.CSPPluginServiceClient) (string, error) {
	t.Helper()
	a, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: w.node("a"), IdempotencyKey: "uid-1"}, grpc.WaitForReady(true))
	return a.GetRequestId(), err
}

// TestAnUnresponsiveNode: the plugin reports a node that starts no Job, deletes the Job, and
// the node is not rebooted when its kubelet returns.
func TestAnUnresponsiveNode(t *testing.T) {
	w := newWorld(t, "--start-timeout", "1s", "--answer-timeout", "100ms")
	w.dead[w.node("a")] = true
	client := v1.NewCSPPluginServiceClient(w.start(t))
	_, err := w.send(t, client)
	if status.Code(err) != codes.DeadlineExceeded || detail[*errdetails.RetryInfo](err) == nil {
		t.Fatalf("before the time is over: %v, want DeadlineExceeded with RetryInfo", err)
	}
	if n := len(w.jobs(t)); n != 1 {
		t.Fatalf("%d Jobs, want 1", n)
	}
	testkit.Until(t, time.Minute, func() bool {
		_, err = w.send(t, client)
		return status.Code(err) != codes.DeadlineExceeded
	})
	if status.Code(err) != codes.FailedPrecondition || !plugin.IsNodeUnresponsive(err) {
		t.Fatalf("after the time: %v, want NodeUnresponsive", err)
	}
	if jobs := w.jobs(t); len(jobs) > 0 {
		t.Errorf("the Job is still there: %v", jobs)
	}
	w.mu.Lock()
	w.dead[w.node("a")] = false
	w.mu.Unlock()
	w.kill(t)
	w.extra = []string{"--answer-timeout", "1m"}
	client = v1.NewCSPPluginServiceClient(w.start(t))
	before := w.bootID(t, w.node("b")) // a reboot of a would have come before this one
	if _, err := client.SendRebootSignal(t.Context(), &v1.SendRebootSignalRequest{NodeName: w.node("b"), IdempotencyKey: "uid-2"}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("node b: %v", err)
	}
	testkit.Until(t, time.Minute, func() bool { return w.bootID(t, w.node("b")) != before })
	if n := w.rebooted(t, w.node("a")); n != 0 {
		t.Errorf("node a was rebooted %d times, want 0", n)
	}
}

// TestANodeThatStartsTheJobAfterAWhile: the same key gets the answer of the same Job.
func TestANodeThatStartsTheJobAfterAWhile(t *testing.T) {
	w := newWorld(t, "--start-timeout", "10m", "--answer-timeout", "100ms")
	w.dead[w.node("a")] = true
	client := v1.NewCSPPluginServiceClient(w.start(t))
	if _, err := w.send(t, client); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("%v, want DeadlineExceeded", err)
	}
	w.mu.Lock()
	w.dead[w.node("a")] = false
	w.mu.Unlock()
	var id string
	testkit.Until(t, time.Minute, func() (ok bool) {
		var err error
		id, err = w.send(t, client)
		return err == nil
	})
	if n, jobs := w.rebooted(t, w.node("a")), len(w.jobs(t)); n > 1 || jobs != 1 || id == "" {
		t.Errorf("%d reboots by %d Jobs under request id %q, want one", n, jobs, id)
	}
}

// TestCleanup: a Job that nobody asks about again is deleted when its time is over.
func TestCleanup(t *testing.T) {
	w := newWorld(t, "--start-timeout", "1s", "--answer-timeout", "100ms")
	w.dead[w.node("a")] = true
	if _, err := w.send(t, v1.NewCSPPluginServiceClient(w.start(t))); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("%v, want DeadlineExceeded", err)
	}
	testkit.Until(t, 2*time.Minute, func() bool { return len(w.jobs(t)) == 0 })
}

// TestCleanupPassesOverAJob: one that names an impossible Node is reported, and those after it
// are deleted all the same.
func TestCleanupPassesOverAJob(t *testing.T) {
	w := newWorld(t)
	w.dead[w.node("a")] = true
	config := Config{Image: "example.com/csp-plugin-node:1", StartTimeout: time.Second}
	config.Namespace = w.namespace
	node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), w.node("a"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(key, name, of string) {
		job := config.job(name, order.Order{Key: key, Node: of, BootID: "boot-0", StartBy: time.Unix(0, 0)}, node)
		job.Spec.Template.Spec.NodeName = node.Name
		if _, err := w.cluster.Client().BatchV1().Jobs(w.namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("uid-1", "node-reboot-1", "no/node")
	create("uid-2", "node-reboot-2", node.Name)
	p := Plugin{Config: config, Client: w.cluster.Client(), Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
	if err := p.clean(t.Context()); err == nil || !strings.Contains(err.Error(), "no/node") {
		t.Errorf("%v does not name the Node", err)
	}
	for _, job := range w.jobs(t) {
		if job.Name != "node-reboot-1" && job.DeletionTimestamp.IsZero() {
			t.Errorf("Job %s is left", job.Name)
		}
	}
}

// TestAJobOfAnotherClient: it is neither used nor deleted.
func TestAJobOfAnotherClient(t *testing.T) {
	w := newWorld(t, "--start-timeout", "1s", "--answer-timeout", "100ms")
	w.dead[w.node("a")] = true
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: jobName(digest("uid-1"))},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeName: w.node("a"), RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "x", Image: "x"}},
		}}},
	}
	if _, err := w.cluster.Client().BatchV1().Jobs(w.namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.send(t, v1.NewCSPPluginServiceClient(w.start(t)))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("%v, want FailedPrecondition", err)
	}
	if n := len(w.jobs(t)); n != 1 {
		t.Errorf("%d Jobs, want that of the other client", n)
	}
}

func TestTerminationIsNotImplemented(t *testing.T) {
	_, err := (&Plugin{}).SendTerminateSignal(t.Context(), &v1.SendTerminateSignalRequest{NodeName: "a"})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "janitor.terminateNodeController.cspPluginHost") {
		t.Errorf("%v", err)
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	err := Config{StartTimeout: time.Millisecond}.Validate()
	for _, want := range []string{"--image", "--start-timeout", "--answer-timeout", "--tls-cert-file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// detail is a detail of an answer; nil if it has none of this type.
func detail[T any](err error) (found T) {
	for _, d := range status.Convert(err).Details() {
		if one, ok := d.(T); ok {
			found = one
		}
	}
	return found
}
