package access

import (
	"bytes"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// resetJob is the Job of a GPUReset as the janitor makes it (janitor/internal/gpureset).
func resetJob(change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "r-reset-job",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "janitor.dgxc.nvidia.com/v1alpha1", Kind: "GPUReset", Name: "r", UID: "u"}},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "gpu-reset", Image: "example.com/gpu-reset:1"}},
			Volumes:    []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		}}},
	}
	change(job)
	return job
}

// TestTheJanitorsJobsResetGPUsOnly: the right to create Jobs is not one to run anything
// as any account.
func TestTheJanitorsJobsResetGPUsOnly(t *testing.T) {
	w := newWorld(t)
	_, err := w.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(manifests + "gpu-reset.yaml")
	if err == nil {
		err = w.cluster.Apply(t.Context(), bytes.NewReader(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	create := func(change func(*batchv1.Job)) error {
		_, err := w.account(t, "janitor").BatchV1().Jobs(namespace).Create(t.Context(), resetJob(change), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	testkit.Until(t, 2*time.Minute, func() bool { return create(func(*batchv1.Job) {}) == nil })
	testkit.Until(t, 2*time.Minute, func() bool { return refused(create(func(j *batchv1.Job) { j.Name = "not-yet-in-force" })) })
	pod := func(change func(*corev1.PodSpec)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec) }
	}
	for what, change := range map[string]func(*batchv1.Job){
		"another name":    func(j *batchv1.Job) { j.Name = "x" },
		"another's name":  func(j *batchv1.Job) { j.Name = "x-reset-job" },
		"no owner":        func(j *batchv1.Job) { j.OwnerReferences = nil },
		"another image":   pod(func(p *corev1.PodSpec) { p.Containers[0].Image = "example.com/shell" }),
		"another command": pod(func(p *corev1.PodSpec) { p.Containers[0].Command = []string{"sh"} }),
		"two containers":  pod(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "x", Image: "x"}) }),
		"one before it":   pod(func(p *corev1.PodSpec) { p.InitContainers = p.Containers }),
		"an account":      pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "fault-quarantine" }),
		"a token":         pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil }),
		"a Secret": pod(func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "store"}}
		}),
	} {
		if err := create(change); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
}
