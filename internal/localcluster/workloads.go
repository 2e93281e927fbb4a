package localcluster

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// appLabel selects the pods of a workload; its value is the workload's name.
const appLabel = "app"

// PodSpec describes a pod that is made without a controller.
type PodSpec struct {
	Namespace string
	Name      string
	// Node binds the pod to a node without the scheduler; empty leaves it to the scheduler.
	Node string
	// GPUs is how many GPUs it asks for.
	GPUs        int
	Labels      map[string]string
	Annotations map[string]string
	Tolerations []corev1.Toleration
	Finalizers  []string
	// Owners are its owner references; the controller they name need not exist.
	Owners []metav1.OwnerReference
	// ServiceAccount it runs as; empty is the namespace's "default".
	ServiceAccount string
}

// AddPod creates a pod, and its namespace when missing. Its label app is its name.
func (c *Cluster) AddPod(ctx context.Context, spec PodSpec) (*corev1.Pod, error) {
	if err := c.ensureNamespace(ctx, spec.Namespace); err != nil {
		return nil, err
	}
	template := podTemplate(spec.Name, spec.GPUs)
	maps.Copy(template.Labels, spec.Labels)
	wanted := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: spec.Namespace, Name: spec.Name, Labels: template.Labels,
			Annotations: spec.Annotations, Finalizers: spec.Finalizers, OwnerReferences: spec.Owners,
		},
		Spec: template.Spec,
	}
	wanted.Spec.NodeName = spec.Node
	wanted.Spec.Tolerations = spec.Tolerations
	wanted.Spec.ServiceAccountName = spec.ServiceAccount
	pod, err := c.client.CoreV1().Pods(spec.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating pod %s/%s: %w", spec.Namespace, spec.Name, err)
	}
	return pod, nil
}

// AddDeployment creates a Deployment whose pods bear the label app=name and ask for gpus each.
func (c *Cluster) AddDeployment(
	ctx context.Context, namespace, name string, replicas, gpus int,
) (*appsv1.Deployment, error) {
	if err := c.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	count := int32(replicas)
	wanted := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: selects(name), Template: podTemplate(name, gpus),
		},
	}
	made, err := c.client.AppsV1().Deployments(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating deployment %s/%s: %w", namespace, name, err)
	}
	return made, nil
}

// AddDaemonSet creates a DaemonSet with one pod, labelled app=name, on every node that has GPUs.
func (c *Cluster) AddDaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error) {
	if err := c.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	template := podTemplate(name, 0)
	template.Spec.NodeSelector = map[string]string{GPULabel: "true"}
	wanted := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: selects(name), Template: template},
	}
	made, err := c.client.AppsV1().DaemonSets(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating daemon set %s/%s: %w", namespace, name, err)
	}
	return made, nil
}

// AddPDB creates a PodDisruptionBudget that keeps minAvailable pods of the workload name.
func (c *Cluster) AddPDB(
	ctx context.Context, namespace, name string, minAvailable int,
) (*policyv1.PodDisruptionBudget, error) {
	least := intstr.FromInt32(int32(minAvailable))
	wanted := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: selects(name)},
	}
	made, err := c.client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating disruption budget %s/%s: %w", namespace, name, err)
	}
	return made, nil
}

// WaitForPods waits until exactly count pods of the workload name run and none is on its way out,
// and returns them.
func (c *Cluster) WaitForPods(ctx context.Context, namespace, name string, count int) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	err := c.await(ctx, startLimit, func(ctx context.Context) error {
		list, err := c.client.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: appLabel + "=" + name})
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running++
			}
		}
		if running != count || len(list.Items) != count {
			return fmt.Errorf("%d pods, %d of them running, want %d", len(list.Items), running, count)
		}
		pods = list.Items
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the pods of %s/%s: %w", namespace, name, err)
	}
	return pods, nil
}

func selects(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: name}}
}

// podTemplate is a pod of one container, whose image nobody ever pulls.
func podTemplate(name string, gpus int) corev1.PodTemplateSpec {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	limits := corev1.ResourceList{}
	if gpus > 0 {
		quantity := *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		resources[GPUResource], limits[GPUResource] = quantity, quantity
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appLabel: name}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "simulated",
			Resources: corev1.ResourceRequirements{Requests: resources, Limits: limits},
		}}},
	}
}
