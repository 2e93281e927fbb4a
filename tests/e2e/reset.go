package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedbatchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/rest"
)

// gpuReset asks for a reset of all GPUs of the node. Its image waits until it is ended.
const gpuReset = `apiVersion: janitor.dgxc.nvidia.com/v1alpha1
kind: GPUReset
metadata: {name: all}
spec: {nodeName: ` + nodeName + `}
`

// reset has the janitor reset the node's GPUs by a privileged Job, which the kubelet runs,
// and tries to run other Jobs with the janitor's rights meanwhile.
func (j *journey) reset(ctx context.Context) (string, error) {
	if err := j.write("reset.yaml", gpuReset); err != nil {
		return "", err
	}
	if _, err := j.run(ctx, "kubectl create namespace gpu-operator"); err != nil {
		return "", err
	}
	if err := j.upgrade(ctx, "repair", "--set janitor.gpuReset.enabled=true", "--set janitor.gpuReset.image="+registry+"/pause:v1"); err != nil {
		return "", err
	}
	if _, err := j.run(ctx, "kubectl apply -f reset.yaml"); err != nil {
		return "", err
	}
	pod, err := j.resetPod(ctx)
	if err != nil {
		return "", err
	}
	job, err := j.client.BatchV1().Jobs(namespace).Get(ctx, "all-reset-job", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	refused, err := j.otherJobs(ctx, job)
	if err != nil {
		return "", err
	}
	if err := j.signal(ctx, pod, syscall.SIGTERM); err != nil {
		return "", err
	}
	_, err = j.run(ctx, "kubectl wait gpureset/all --for=condition=Complete --timeout=2m && kubectl delete gpureset all && kubectl delete namespace gpu-operator --wait")
	if err == nil {
		_, err = j.nodeIs(ctx, time.Minute, "untouched", untouched)
	}
	return fmt.Sprintf("the kubelet ran the janitor's Job to its end; %d others are refused to the janitor's account", refused), err
}

// resetPod waits for the pod of the reset's Job to run.
func (j *journey) resetPod(ctx context.Context) (pod *corev1.Pod, err error) {
	err = until(ctx, 2*time.Minute, func(ctx context.Context) error {
		list, err := j.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=all-reset-job"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("of the reset %d pods are there, and not one that runs", len(list.Items))
		}
		pod = &list.Items[0]
		return nil
	})
	return pod, err
}

// otherJobs tries to create copies of the janitor's Job, each changed in one way, as the
// janitor. All are refused, and an unchanged copy is not.
func (j *journey) otherJobs(ctx context.Context, job *batchv1.Job) (int, error) {
	config := rest.CopyConfig(j.cluster.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":janitor",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	janitor, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	jobs := janitor.BatchV1().Jobs(namespace)
	if err := create(ctx, jobs, job, func(*corev1.PodSpec) {}, metav1.DryRunAll); err != nil {
		return 0, fmt.Errorf("a copy of the janitor's Job, unchanged: %w", err)
	}
	for _, what := range slices.Sorted(maps.Keys(changes)) {
		err := create(ctx, jobs, job, changes[what])
		if err == nil {
			return 0, fmt.Errorf("a Job with %s is created", what)
		}
		if !strings.Contains(err.Error(), "nvsentinel-gpu-reset-jobs") {
			return 0, fmt.Errorf("a Job with %s is not refused by the policy of resets: %w", what, err)
		}
	}
	return len(changes), nil
}

// hostShell writes into the files of the node.
var hostShell = &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id >/host/tmp/id"}}

// changes make of the janitor's Job one that runs something else, or reads a Secret.
var changes = map[string]func(*corev1.PodSpec){
	"a hook": func(p *corev1.PodSpec) {
		p.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: hostShell}}
	},
	"a probe": func(p *corev1.PodSpec) {
		p.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: hostShell}}
	},
	"a command": func(p *corev1.PodSpec) { p.Containers[0].Command = hostShell.Command },
	"another container": func(p *corev1.PodSpec) {
		p.InitContainers = []corev1.Container{*p.Containers[0].DeepCopy()}
		p.InitContainers[0].Name = "before"
	},
	"another image": func(p *corev1.PodSpec) { p.Containers[0].Image = registry + "/nvidia/nvsentinel/janitor:v1" },
	"a library": func(p *corev1.PodSpec) {
		p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/host/tmp/x.so"})
	},
	"a Secret": func(p *corev1.PodSpec) {
		p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nvsentinel-store"}}}}
	},
	"a token": func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil },
}

// create creates a changed copy of a Job of the janitor's.
func create(ctx context.Context, jobs typedbatchv1.JobInterface, job *batchv1.Job, change func(*corev1.PodSpec), dryRun ...string) error {
	owner := *job.OwnerReferences[0].DeepCopy()
	owner.Name = "forged"
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: job.Labels}, Spec: *job.Spec.Template.Spec.DeepCopy()}
	forged := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "forged-reset-job", Namespace: namespace, Labels: job.Labels, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: batchv1.JobSpec{
			BackoffLimit: job.Spec.BackoffLimit, ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: job.Spec.TTLSecondsAfterFinished, Template: template,
		},
	}
	change(&forged.Spec.Template.Spec)
	_, err := jobs.Create(ctx, forged, metav1.CreateOptions{DryRun: dryRun})
	return err
}
