package localcluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	// PowerAnnotation on a simulated node, with the value PowerOff, makes the node not Ready;
	// without it the node becomes Ready again. To simulate a reboot, set it, patch
	// status.nodeInfo.bootID and remove it.
	PowerAnnotation = "nvsentinel.nvidia.com/simulated-power"
	// PowerOff is the value of PowerAnnotation that takes a node's power.
	PowerOff = "off"
	// TerminationAnnotation on a pod is how long it takes to go when deleted: a Go duration, or
	// "never". Without it the pod is gone at once.
	TerminationAnnotation = "nvsentinel.nvidia.com/simulated-termination"
	// RunAnnotation on a pod of a Job is how long it runs before it succeeds: a Go duration.
	RunAnnotation = "nvsentinel.nvidia.com/simulated-run"
	// GPUResource is the extended resource that GPU nodes offer.
	GPUResource corev1.ResourceName = "nvidia.com/gpu"
	// GPULabel marks nodes that have GPUs.
	GPULabel = "nvidia.com/gpu.present"

	kwokAnnotation = "kwok.x-k8s.io/node"
	gpusPerNode    = 8
	nodeCreators   = 16
)

// NodeSpec describes a simulated node; every empty field but Name has a default.
type NodeSpec struct {
	Name string
	// ProviderID defaults to kwok://<name>-<8 hex>.
	ProviderID string
	// SystemUUID and BootID default to random UUIDs.
	SystemUUID string
	BootID     string
	// GPUs defaults to 8; a negative number makes a node without GPUs.
	GPUs        int
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}

// AddNode creates a simulated node. It becomes Ready by itself; WaitForNodes waits for that.
func (c *Cluster) AddNode(ctx context.Context, spec NodeSpec) (*corev1.Node, error) {
	wanted := newNode(spec)
	if !c.options.Controllers {
		wanted.Status.Conditions = readyConditions()
	}
	node, err := c.client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating node %s: %w", spec.Name, err)
	}
	return node, nil
}

// DeleteNode deletes a node; one that is gone already is fine.
func (c *Cluster) DeleteNode(ctx context.Context, name string) error {
	err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// SetPower gives or takes the simulated power of a node. The Ready condition follows, which the
// caller waits for.
func (c *Cluster) SetPower(ctx context.Context, name string, on bool) error {
	var value any
	if !on {
		value = PowerOff
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{PowerAnnotation: value}},
	})
	if err != nil {
		return fmt.Errorf("encoding the power of node %s: %w", name, err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("setting the power of node %s: %w", name, err)
	}
	return nil
}

// addFirstNodes creates the nodes that Options ask for and waits until they are usable.
func (c *Cluster) addFirstNodes(ctx context.Context) error {
	names := make([]string, c.options.Nodes)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(nodeCreators)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.options.NodePrefix, i)
		group.Go(func() error {
			_, err := c.AddNode(groupCtx, NodeSpec{Name: names[i]})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.WaitForNodes(ctx, names...)
}

// newNode builds the Node object of a spec.
func newNode(spec NodeSpec) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: spec.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	gpus := spec.GPUs
	if gpus == 0 {
		gpus = gpusPerNode
	}
	if gpus > 0 {
		labels[GPULabel] = "true"
		resources[GPUResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	maps.Copy(labels, spec.Labels)
	annotations := map[string]string{kwokAnnotation: "fake"}
	maps.Copy(annotations, spec.Annotations)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: labels, Annotations: annotations},
		Spec: corev1.NodeSpec{
			ProviderID: or(spec.ProviderID, func() string { return "kwok://" + spec.Name + "-" + randomHex() }),
			Taints:     spec.Taints,
		},
		Status: corev1.NodeStatus{
			Phase: corev1.NodeRunning, Capacity: resources, Allocatable: resources,
			NodeInfo: nodeInfo(spec),
		},
	}
}

func nodeInfo(spec NodeSpec) corev1.NodeSystemInfo {
	newUUID := func() string { return string(uuid.NewUUID()) }
	return corev1.NodeSystemInfo{
		MachineID:               randomHex() + randomHex() + randomHex() + randomHex(),
		SystemUUID:              or(spec.SystemUUID, newUUID),
		BootID:                  or(spec.BootID, newUUID),
		KernelVersion:           "simulated",
		OSImage:                 "simulated",
		ContainerRuntimeVersion: "kwok://simulated",
		KubeletVersion:          "simulated",
		OperatingSystem:         "linux",
		Architecture:            "amd64",
	}
}

// readyConditions are those of a healthy node of a cluster that has nobody to keep them.
func readyConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", Message: "simulated node without a kubelet",
	}}
}

func or(value string, otherwise func() string) string {
	if value != "" {
		return value
	}
	return otherwise()
}

// randomHex returns 8 random hexadecimal digits.
func randomHex() string {
	var random [4]byte
	// crypto/rand.Read never fails since Go 1.24.
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}
