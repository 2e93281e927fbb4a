package eviction

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Reasons for a pod to be in or out of the extent of a GPU's repair.
const (
	// HoldsGPU: the pod's annotation lists the GPU.
	HoldsGPU Reason = "HoldsGPU"
	// MayHoldGPU: the pod asked for GPUs and its annotation does not say which.
	MayHoldGPU Reason = "MayHoldGPU"
	// OtherDevices: the pod holds no GPU, or others.
	OtherDevices Reason = "OtherDevices"
)

// gpuResources are how the names of resources begin that give a GPU, or a part
// of one, to a pod.
var gpuResources = []string{"nvidia.com/gpu", "nvidia.com/pgpu", "nvidia.com/mig-"}

// uuidPrefix begins the ids that can be compared with a GPU's UUID; ids of GPU
// instances ("MIG-...") do not tell their GPU.
const uuidPrefix = "GPU-"

// holdsGPU judges a pod by the devices it was given.
func holdsGPU(pod *corev1.Pod, gpus []string) (bool, Reason) {
	given, ok := nodemark.Devices(pod.Annotations)
	for _, ids := range given {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(gpus, wholeGPU(id)) }) {
			return true, HoldsGPU
		}
	}
	if !ok || len(given) == 0 && len(pod.Spec.ResourceClaims) > 0 {
		return true, MayHoldGPU
	}
	for _, name := range asked(pod) {
		if ids := given[name]; len(ids) == 0 || slices.ContainsFunc(ids, unclear) {
			return true, MayHoldGPU
		}
	}
	return false, OtherDevices
}

// wholeGPU is the UUID in the id of a shared GPU ("GPU-...::3").
func wholeGPU(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid
}

func unclear(id string) bool { return !strings.HasPrefix(id, uuidPrefix) }

// asked are the GPU resources that the pod's containers ask for.
func asked(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for name, quantity := range c.Resources.Limits {
				if isGPU(name) && !quantity.IsZero() {
					names = append(names, string(name))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isGPU(name corev1.ResourceName) bool { return IsGPU(string(name)) }

// IsGPU says whether a resource of this name gives a GPU, or a part of one.
func IsGPU(resource string) bool {
	return slices.ContainsFunc(gpuResources, func(prefix string) bool { return strings.HasPrefix(resource, prefix) })
}

// Facts is the pod with what this package judges by, its names and its labels,
// and nothing else: a cluster's pods are many, and large.
func Facts(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, Annotations: readAnnotations(pod.Annotations), OwnerReferences: controllerKind(pod),
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims,
			InitContainers: gpuContainers(pod.Spec.InitContainers), Containers: gpuContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: readiness(pod)},
	}
}

func readAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{nodemark.DevicesAnnotation, corev1.MirrorPodAnnotationKey, configSource} {
		if value, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// controllerKind keeps of the owners the controller, and of it what tells it and its
// kind from others.
func controllerKind(pod *corev1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, UID: owner.UID, Controller: owner.Controller}}
	}
	return nil
}

// readiness keeps the condition Ready, and of it what is not said for people.
func readiness(pod *corev1.Pod) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return out
}

// gpuContainers keeps the containers that ask for GPUs, and of them that alone.
func gpuContainers(all []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range all {
		limits := corev1.ResourceList{}
		for name, quantity := range c.Resources.Limits {
			if isGPU(name) {
				limits[name] = quantity
			}
		}
		if len(limits) > 0 {
			out = append(out, corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}})
		}
	}
	return out
}
