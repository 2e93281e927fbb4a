package main

import (
	"encoding/json"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/csp-plugins/node/decision"
	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

var sample = order.Order{Key: "uid-1", Node: "a", BootID: "boot-0", StartBy: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), SystemdTimeout: time.Minute}

func TestAJobShowsItsOrder(t *testing.T) {
	job := Default().job("x", sample, &corev1.Node{})
	if got, ok := orderOf(job); !ok || got != sample {
		t.Errorf("%+v, %v; want %+v", got, ok, sample)
	}
	if got := jobFacts(job, "uid-1"); got.State != decision.JobActive || got.Node != "a" || got.BootID != "boot-0" || !got.StartBy.Equal(sample.StartBy) {
		t.Errorf("%+v", got)
	}
	if got := jobFacts(job, "uid-2"); got.State != decision.JobForeign {
		t.Errorf("a Job of another key is %s", got.State)
	}
	for name, change := range map[string]func(*batchv1.Job){
		"label":     func(j *batchv1.Job) { j.Labels[managedBy] = "x" },
		"container": func(j *batchv1.Job) { j.Spec.Template.Spec.Containers = nil },
		"order":     func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Env = nil },
	} {
		other := job.DeepCopy()
		change(other)
		if got := jobFacts(other, "uid-1"); got.State != decision.JobForeign {
			t.Errorf("another %s: %s, want %s", name, got.State, decision.JobForeign)
		}
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	if got := jobFacts(job, "uid-1"); got.State != decision.JobEnded {
		t.Errorf("a Job that failed is %s", got.State)
	}
	now := metav1.Now()
	job.DeletionTimestamp = &now
	if got := jobFacts(job, "uid-1"); got.State != decision.JobDeleting {
		t.Errorf("a Job that is being deleted is %s", got.State)
	}
}

// TestGoldenJob: tests/access tries this file against the admission policy.
func TestGoldenJob(t *testing.T) {
	c := Default()
	c.Image = "example.com/csp-plugin-node:1"
	o := sample
	job := c.job(jobName(digest(o.Key)), o, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}})
	text, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "csp-plugins/node/job.golden.json", string(text)+"\n")
}

func TestPodState(t *testing.T) {
	ended := func(code int, started bool) corev1.ContainerState {
		s := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code)}}
		if started {
			s.Terminated.StartedAt = metav1.Now()
		}
		return s
	}
	for name, tt := range map[string]struct {
		state corev1.ContainerState
		want  decision.PodState
	}{
		"created":              {corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, decision.PodWaiting},
		"nothing reported":     {corev1.ContainerState{}, decision.PodWaiting},
		"running":              {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, decision.PodStarted},
		"requested":            {ended(order.Requested.Code(), true), decision.PodRequested},
		"another boot":         {ended(order.OtherBoot.Code(), true), decision.PodOtherBoot},
		"late":                 {ended(order.Late.Code(), true), decision.PodLate},
		"failed":               {ended(order.Failed.Code(), true), decision.PodFailed},
		"an unreadable order":  {ended(order.Unreadable.Code(), true), decision.PodFailed},
		"killed":               {ended(137, true), decision.PodStarted},
		"could not be started": {ended(128, false), decision.PodWaiting},
		"crashed":              {ended(2, true), decision.PodStarted},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: tt.state}}}}
		if got := podState(pod); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	rejected := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node had condition: [DiskPressure]."}}
	if got := podState(rejected); got != decision.PodRejected || obstacle(rejected) != rejected.Status.Message {
		t.Errorf("a pod that the kubelet refused is %s, %s", got, obstacle(rejected))
	}
	killed := rejected.DeepCopy()
	killed.Status.ContainerStatuses = []corev1.ContainerStatus{{State: ended(137, true)}}
	if got := podState(killed); got != decision.PodStarted {
		t.Errorf("a pod that a shutdown killed is %s", got)
	}
	if got := podState(nil); got != decision.PodAbsent {
		t.Errorf("no pod is %s", got)
	}
	if got := podState(&corev1.Pod{}); got != decision.PodWaiting {
		t.Errorf("a pod without a status is %s", got)
	}
}
