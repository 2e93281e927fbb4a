package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
)

const (
	// jobTTL is how long an ended Job is kept. While it exists, its key is known.
	jobTTL = 24 * time.Hour
	// runMargin is the time that the program needs in addition to that of systemd.
	runMargin = 2 * time.Minute
	// busFolder is the folder of the host's system bus.
	busFolder = "/run/dbus"
	// Labels of the Jobs and their values.
	managedBy = "app.kubernetes.io/managed-by"
	component = "app.kubernetes.io/name"
	owner     = "nvsentinel-csp-plugin-node"
	program   = "node-reboot"
)

func jobLabels() map[string]string { return map[string]string{managedBy: owner, component: program} }

// digest of a key: it ends the name of the Job, and is part of the request ID.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%x", sum[:10])
}

// jobName is the name of the Job of a key, so that two replicas cannot create two.
func jobName(digest string) string { return program + "-" + digest }

// job is the Job of an order: one privileged Pod on the node, which is not tried again. It
// is deleted with its Node.
func (c Config) job(name string, o order.Order, node *corev1.Node) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: c.Namespace, Labels: jobLabels(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            new(int32(0)),
			ActiveDeadlineSeconds:   new(int64((c.StartTimeout + c.SystemdTimeout + runMargin) / time.Second)),
			TTLSecondsAfterFinished: new(int32(jobTTL / time.Second)),
			Template:                corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: jobLabels()}, Spec: c.pod(o)},
		},
	}
}

// pod has no scheduler, no service account token, and nothing of the host but its processes,
// its devices and its system bus.
func (c Config) pod(o order.Order) corev1.PodSpec {
	pod := corev1.PodSpec{
		NodeName:                     o.Node,
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: new(false),
		HostPID:                      true,
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: program, Image: c.Image, Command: []string{"/" + program},
			// The image's own user is nobody.
			SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0))},
			VolumeMounts:    []corev1.VolumeMount{{Name: "dbus", MountPath: busFolder}},
		}},
		Volumes: []corev1.Volume{{
			Name: "dbus", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: busFolder}},
		}},
	}
	for _, v := range o.Variables() {
		pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	for _, name := range c.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return pod
}

// orderOf reads the order of a Job; false is a Job that this plugin did not create.
func orderOf(job *batchv1.Job) (order.Order, bool) {
	for name, value := range jobLabels() {
		if job.Labels[name] != value {
			return order.Order{}, false
		}
	}
	containers := job.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		return order.Order{}, false
	}
	values := map[string]string{}
	for _, v := range containers[0].Env {
		values[v.Name] = v.Value
	}
	o, err := order.Parse(func(name string) string { return values[name] })
	return o, err == nil
}
