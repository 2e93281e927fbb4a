package gpureset

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// objectFacts are what a decision needs of the object.
func objectFacts(object *v1alpha1.GPUReset) reset.Object {
	s := object.Status
	o := reset.Object{
		UID:           string(object.UID),
		Session:       object.GetAnnotations()[nodemark.SessionAnnotation],
		Deleting:      !object.DeletionTimestamp.IsZero(),
		Finalizer:     controllerutil.ContainsFinalizer(object, v1alpha1.ClaimFinalizer),
		Completed:     s.CompletionTime != nil,
		Concluded:     s.Result != nil,
		ResetManually: s.JobRef == nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionResetJobCompleted),

		CompletedAt: timeOf(s.CompletionTime),
		Started:     timeOf(s.StartTime),
		TeardownAt:  timeOf(s.TeardownTime),
		JobAt:       timeOf(s.JobTime),
		RestoreAt:   timeOf(s.RestoreTime),
	}
	if s.Machine != nil {
		o.Machine = record.NodeIdentity{
			UID: s.Machine.UID, ProviderID: s.Machine.ProviderID, SystemUUID: s.Machine.SystemUUID, BootID: s.BootID,
		}
	}
	if s.JobRef != nil {
		o.JobUID = s.JobRef.UID
	}
	if s.Result != nil {
		o.Good = s.Result.Succeeded
	}
	for _, one := range s.Services {
		was := reset.Service{Label: one.Label, Running: one.Running}
		if one.Value != nil {
			was.Value, was.Present = *one.Value, true
		}
		o.Noted = append(o.Noted, was)
	}
	return o
}

// timeOf is a time that may not be set.
func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// downOf is the uid of the GPUReset that took the services off a Node.
func downOf(node *corev1.Node) string { return nodemark.Read(node).Reset }

// readJob reads the object's Job, if one was noted; nil is certain absence.
func (c *Reconciler) readJob(ctx context.Context, object *v1alpha1.GPUReset) (*batchv1.Job, error) {
	ref := object.Status.JobRef
	if ref == nil {
		return nil, nil
	}
	job, err := c.Nodes.BatchV1().Jobs(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading job %s: %w", ref.Name, err)
	}
	return job, nil
}

// jobFacts are what a decision needs of the Job; nil is certain absence.
func jobFacts(object *v1alpha1.GPUReset, job *batchv1.Job) reset.Job {
	switch {
	case job == nil:
		return reset.JobAbsent
	case !metav1.IsControlledBy(job, object):
		return reset.JobForeign
	case ended(job, batchv1.JobComplete) != nil:
		return reset.JobSucceeded
	case ended(job, batchv1.JobFailed) != nil:
		return reset.JobFailed
	}
	return reset.JobRunning
}

// ended is the condition of a Job that ended in that way; nil if it did not.
func ended(job *batchv1.Job, in batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == in && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// Services are the GPU services of nodes: what runs on a node and holds its GPUs.
type Services struct {
	// Namespace of their pods.
	Namespace string
	// Apps are the services.
	Apps []App
}

// App is one service. Its pods have the label app.
type App struct {
	// Name is the value of the pods' label app.
	Name string
	// Label of the Node that is "false" where the service is not to run.
	Label string
}

// appLabel is the label of the services' pods.
const appLabel = "app"

// GPUOperator are the services that a GPU operator runs, which watches these labels
// (source: the operator's documentation of its operands).
func GPUOperator(namespace string) Services {
	const deploy = "nvidia.com/gpu.deploy."
	return Services{Namespace: namespace, Apps: []App{
		{"nvidia-device-plugin-daemonset", deploy + "device-plugin"},
		{"nvidia-dcgm", deploy + "dcgm"},
		{"nvidia-dcgm-exporter", deploy + "dcgm-exporter"},
		{"gpu-feature-discovery", deploy + "gpu-feature-discovery"},
	}}
}

// selector selects the pods of all services.
func (s Services) selector() string {
	var names []string
	for _, app := range s.Apps {
		names = append(names, app.Name)
	}
	return appLabel + " in (" + strings.Join(names, ",") + ")"
}

// pods lists the services' pods on a node, at the API server itself.
func (s Services) pods(ctx context.Context, cluster kubernetes.Interface, node string) ([]corev1.Pod, error) {
	list, err := cluster.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: s.selector(), FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the GPU services on node %s: %w", node, err)
	}
	return list.Items, nil
}

// facts are the services as they are on a Node with these pods.
func (s Services) facts(node *corev1.Node, pods []corev1.Pod) []reset.Service {
	var out []reset.Service
	for _, app := range s.Apps {
		is := reset.Service{Label: app.Label}
		is.Value, is.Present = node.Labels[app.Label]
		for i := range pods {
			pod := &pods[i]
			if pod.Labels[appLabel] != app.Name || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			is.Pods++
			if pod.DeletionTimestamp.IsZero() && podReady(pod) {
				is.Ready++
			}
		}
		out = append(out, is)
	}
	return out
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Tool is what the Job runs.
type Tool struct {
	// Namespace of the Jobs: the janitor's own.
	Namespace string
	// Image has gpu-reset as its entry point; PullSecrets are the names of its.
	Image       string
	PullSecrets []string
	// DriverRoot is the folder of the node below which the driver's programs are, for
	// example / or /run/nvidia/driver.
	DriverRoot string
	// RuntimeClass of the pod; empty is the cluster's.
	RuntimeClass string
	// Deadline of the whole Job.
	Deadline time.Duration
}
