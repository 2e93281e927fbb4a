package main

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/csp-plugins/node/decision"
	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
)

// facts are what was read about a request; job, pod and node are nil if they certainly do
// not exist.
type facts struct {
	job  *batchv1.Job
	pod  *corev1.Pod
	node *corev1.Node
}

// observe reads the Job of a request, its Pod and its Node, from the API server itself.
func (p *Plugin) observe(ctx context.Context, r request) (f facts, err error) {
	if f.job, err = p.Client.BatchV1().Jobs(p.Namespace).Get(ctx, r.job, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		f.job = nil
	} else if err != nil {
		return f, fmt.Errorf("reading job %s: %w", r.job, err)
	}
	if f.job != nil {
		if f.pod, err = p.podOf(ctx, f.job); err != nil {
			return f, err
		}
	}
	if f.node, err = p.Client.CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		f.node = nil
	} else if err != nil {
		return f, fmt.Errorf("reading node %s: %w", r.node, err)
	}
	return f, nil
}

// podOf reads the Pod of a Job. A Job has one, because its backoff limit is 0.
func (p *Plugin) podOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pods, err := p.Client.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of job %s: %w", job.Name, err)
	}
	var found *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if metav1.IsControlledBy(pod, job) && (found == nil || podState(found) == decision.PodWaiting) {
			found = pod
		}
	}
	return found, nil
}

// view is what a decision needs of the facts.
func (f facts) view(r request) decision.View {
	v := decision.View{Node: r.node, Job: jobFacts(f.job, r.key), Pod: decision.Pod{State: podState(f.pod)}}
	if f.node != nil {
		v.Live = decision.Node{Exists: true, BootID: f.node.Status.NodeInfo.BootID}
	}
	return v
}

func jobFacts(job *batchv1.Job, key string) decision.Job {
	if job == nil {
		return decision.Job{State: decision.JobAbsent}
	}
	o, known := orderOf(job)
	if !known || o.Key != key {
		return decision.Job{State: decision.JobForeign}
	}
	out := decision.Job{State: decision.JobActive, Node: o.Node, BootID: o.BootID, StartBy: o.StartBy}
	switch {
	case !job.DeletionTimestamp.IsZero():
		out.State = decision.JobDeleting
	case ended(job):
		out.State = decision.JobEnded
	}
	return out
}

func ended(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// results are the states of a Pod whose program has ended with a result.
var results = map[order.Result]decision.PodState{
	order.Requested: decision.PodRequested, order.OtherBoot: decision.PodOtherBoot, order.Late: decision.PodLate,
	order.Failed: decision.PodFailed, order.Unreadable: decision.PodFailed,
}

func podState(pod *corev1.Pod) decision.PodState {
	switch {
	case pod == nil:
		return decision.PodAbsent
	case pod.Status.Phase == corev1.PodFailed && !anyStarted(pod):
		return decision.PodRejected
	case len(pod.Status.ContainerStatuses) == 0:
		return decision.PodWaiting
	}
	state := pod.Status.ContainerStatuses[0].State
	if state.Terminated != nil {
		if result, known := order.ResultOf(int(state.Terminated.ExitCode)); known {
			return results[result]
		}
	}
	if anyStarted(pod) {
		return decision.PodStarted
	}
	return decision.PodWaiting
}

// anyStarted reports whether the container of a Pod has ever run. The runtime reports one
// that it could not start as terminated, without a time of its start.
func anyStarted(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil && c.State.Terminated.StartedAt.Unix() > 0 {
			return true
		}
	}
	return false
}

// obstacle is why the kubelet has not started a Pod, in its own words.
func obstacle(pod *corev1.Pod) string {
	switch {
	case pod == nil:
		return "the Job has no pod"
	case pod.Status.Message != "":
		return pod.Status.Message
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return fmt.Sprintf("%s %.200s", c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	return "the kubelet has reported nothing about the pod"
}
