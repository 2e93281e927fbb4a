package access

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// rebootJob is the Job of a reboot as csp-plugin-node creates it, changed.
func rebootJob(t *testing.T, change func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	text, err := os.ReadFile("../../csp-plugins/node/job.golden.json")
	job := &batchv1.Job{}
	if err == nil {
		err = json.Unmarshal(text, job)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(job)
	return job
}

// reboots applies the manifest of csp-plugin-node, waits until the policies are active, and
// returns functions that create and delete a Job as the plugin, in a dry run.
func reboots(t *testing.T) (create func(*batchv1.Job) error, remove func(name string) error) {
	t.Helper()
	w := newWorld(t)
	install(t, w.cluster, "node-reboot.yaml")
	jobs := w.account(t, "csp-plugin-node").BatchV1().Jobs(namespace)
	dry := []string{metav1.DryRunAll}
	create = func(j *batchv1.Job) error {
		_, err := jobs.Create(t.Context(), j, metav1.CreateOptions{DryRun: dry})
		return err
	}
	remove = func(name string) error {
		return jobs.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dry, PropagationPolicy: new(metav1.DeletePropagationBackground)})
	}
	testkit.Until(t, 2*time.Minute, func() bool { return create(rebootJob(t, func(*batchv1.Job) {})) == nil })
	testkit.Until(t, 2*time.Minute, func() bool {
		return refused(create(rebootJob(t, func(j *batchv1.Job) { j.Name = "not-yet-active" })))
	})
	return create, remove
}

// TestTheNodePluginCreatesRebootJobsOnly: the permission to create Jobs is no permission to
// run anything as any account.
func TestTheNodePluginCreatesRebootJobsOnly(t *testing.T) {
	create, _ := reboots(t)
	pod := func(change func(*corev1.PodSpec)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec) }
	}
	container := func(change func(*corev1.Container)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec.Containers[0]) }
	}
	secret := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "store"}, Key: "uri"}}
	for what, change := range map[string]func(*batchv1.Job){
		"another name":         func(j *batchv1.Job) { j.Name = "x" },
		"no owner":             func(j *batchv1.Job) { j.OwnerReferences = nil },
		"another Node's":       func(j *batchv1.Job) { j.OwnerReferences[0].Name = "b" },
		"another label":        func(j *batchv1.Job) { j.Labels["a"] = "b" },
		"an annotation":        func(j *batchv1.Job) { j.Annotations = map[string]string{"a": "b"} },
		"tries":                func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(6)) },
		"many pods":            func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = new(int32(9)), new(int32(9)) },
		"no deadline":          func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = nil },
		"a long deadline":      func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(7200)) },
		"another label of pod": func(j *batchv1.Job) { j.Spec.Template.Labels["app.kubernetes.io/name"] = "janitor" },
		"a scheduler":          pod(func(p *corev1.PodSpec) { p.NodeName = "" }),
		"another node":         pod(func(p *corev1.PodSpec) { p.NodeName = "b" }),
		"the node's network":   pod(func(p *corev1.PodSpec) { p.HostNetwork = true }),
		"no node's processes":  pod(func(p *corev1.PodSpec) { p.HostPID = false }),
		"an account":           pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "janitor" }),
		"a token":              pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil }),
		"one before it":        pod(func(p *corev1.PodSpec) { p.InitContainers = p.Containers }),
		"two containers":       pod(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "x", Image: "x"}) }),
		"the root of the node": pod(func(p *corev1.PodSpec) { p.Volumes[0].HostPath.Path = "/" }),
		"a Secret as volume": pod(func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "store"}}
		}),
		"another image":    container(func(c *corev1.Container) { c.Image = "example.com/shell" }),
		"another command":  container(func(c *corev1.Container) { c.Command = []string{"/bin/sh"} }),
		"no command":       container(func(c *corev1.Container) { c.Command = nil }),
		"arguments":        container(func(c *corev1.Container) { c.Args = []string{"--bus=unix:path=/tmp/x"} }),
		"a Secret's value": container(func(c *corev1.Container) { c.Env[0] = corev1.EnvVar{Name: c.Env[0].Name, ValueFrom: secret} }),
		"another variable": container(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/x.so"}) }),
		"two lines":        container(func(c *corev1.Container) { c.Env[0].Value = "a\nb" }),
		"an order for b":   container(func(c *corev1.Container) { c.Env[1].Value = "b" }),
		"another mount":    container(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/proc" }),
		"another capability": container(func(c *corev1.Container) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		}),
	} {
		if err := create(rebootJob(t, change)); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
}

// TestTheNodePluginDeletesItsOwnJobsOnly: Jobs of other controllers stay.
func TestTheNodePluginDeletesItsOwnJobsOnly(t *testing.T) {
	_, remove := reboots(t)
	admin := newWorld(t).admin.BatchV1().Jobs(namespace)
	other := rebootJob(t, func(j *batchv1.Job) {
		j.Name, j.Labels, j.OwnerReferences = "of-another", map[string]string{"app.kubernetes.io/name": "gpu-reset"}, nil
	})
	own := rebootJob(t, func(j *batchv1.Job) { j.OwnerReferences = nil })
	for _, job := range []*batchv1.Job{other, own} {
		if _, err := admin.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, 2*time.Minute, func() bool { return refused(remove(other.Name)) })
	if err := remove(own.Name); err != nil {
		t.Errorf("its own Job: %v", err)
	}
}
