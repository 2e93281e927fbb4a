package gpureset

import (
	"path"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
)

const (
	// jobTTL is how long an ended Job is kept for a person to look at.
	jobTTL = 24 * time.Hour
	// hostRoot is where the pod has the node's own files.
	hostRoot = "/host"
	// Labels of the Jobs and their values.
	managedBy = "app.kubernetes.io/managed-by"
	component = "app.kubernetes.io/name"
	program   = "gpu-reset"
	janitor   = "nvsentinel-janitor"
)

// job is the Job of a reset: one privileged pod on the node, which is not tried
// again, and which nobody gives the GPUs to as a resource.
func (t Tool) job(object *v1alpha1.GPUReset) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: object.JobName(), Namespace: t.Namespace, Labels: jobLabels(),
			// It does not block the object's deletion, for which some clusters want a right
			// of its own.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind, Name: object.Name, UID: object.UID, Controller: new(true),
			}},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            new(int32(0)),
			ActiveDeadlineSeconds:   new(int64(t.Deadline / time.Second)),
			TTLSecondsAfterFinished: new(int32(jobTTL / time.Second)),
			Template:                corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: jobLabels()}, Spec: t.pod(object)},
		},
	}
}

func jobLabels() map[string]string { return map[string]string{managedBy: janitor, component: program} }

func (t Tool) pod(object *v1alpha1.GPUReset) corev1.PodSpec {
	pod := corev1.PodSpec{
		NodeName:                     object.Spec.NodeName,
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: new(false),
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: program, Image: t.Image,
			// The image's own user is nobody.
			SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0))},
			Env: []corev1.EnvVar{
				{Name: "NVIDIA_GPU_RESETS", Value: strings.Join(object.GPUs(), ",")},
				// A container runtime must not give the pod a GPU: it would be in use.
				{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"},
				{Name: "DRIVER_ROOT", Value: path.Join(hostRoot, t.DriverRoot)},
			},
			VolumeMounts: []corev1.VolumeMount{{
				Name: "host", MountPath: hostRoot, MountPropagation: new(corev1.MountPropagationHostToContainer),
			}},
		}},
		Volumes: []corev1.Volume{{
			Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		}},
	}
	if t.RuntimeClass != "" {
		pod.RuntimeClassName = &t.RuntimeClass
	}
	for _, name := range t.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return pod
}
