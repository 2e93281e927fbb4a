package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// kubeconfig is by what a node's connector speaks to the API server.
func (f *Fleet) kubeconfig(node string) string { return filepath.Join(f.Dir, node+".kubeconfig") }

// gatewayToken is by what a node's connector speaks to the gateway.
func (f *Fleet) gatewayToken(node string) string { return filepath.Join(f.Dir, node+".token") }

// identify gives a node's connector the tokens that a kubelet would: those of a pod
// on the node, whose name the API server reads from them.
func (f *Fleet) identify(ctx context.Context, node string) error {
	pod, err := f.Cluster.AddPod(ctx, localcluster.PodSpec{
		Namespace: "nvsentinel", Name: fmt.Sprintf("%s-%s-%s", Connector, node, strings.ToLower(rand.Text()[:5])), Node: node, ServiceAccount: Connector,
		Labels: map[string]string{connectorOf: node}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	})
	if err != nil {
		return err
	}
	path, err := f.Cluster.PodKubeconfig(ctx, pod, 24*time.Hour)
	if err != nil {
		return err
	}
	if f.Gate != nil {
		if path, err = f.Gate.through(path, f.Dir); err != nil {
			return err
		}
	}
	token, err := f.Cluster.PodToken(ctx, pod, gatewayAudience, 24*time.Hour)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(f.gatewayToken(node), []byte(token), 0o600), os.Rename(path, f.kubeconfig(node)))
}

// connectorOf is the label of the pod whose token a node's connector has.
const connectorOf = "test/connector-of"

// identified sees to it that a node's connector has a pod: Kubernetes removes those
// of a Node that stays away.
func (f *Fleet) identified(ctx context.Context, node string) error {
	pods, err := f.Cluster.Client().CoreV1().Pods("nvsentinel").List(ctx, metav1.ListOptions{LabelSelector: connectorOf + "=" + node})
	s := f.Service(Connector + "@" + node)
	if err != nil || len(pods.Items) > 0 || s == nil {
		return err
	}
	if err := f.identify(ctx, node); err != nil {
		return err
	}
	s.Kill()
	return nil
}

// Returned brings a deleted machine back under its name: a new Node object of
// the same machine, as a kubelet makes it that registers again. Its processes
// and disks were there all the time. It returns when the simulated kubelet looks
// after the new Node's pods.
func (f *Fleet) Returned(ctx context.Context, was *corev1.Node) error {
	node, err := f.Node(ctx, was.Name)
	switch {
	case err == nil && node.UID != was.UID:
	case err == nil:
		return fmt.Errorf("node %s was not deleted", was.Name)
	case !apierrors.IsNotFound(err):
		return err
	default:
		// The machine may have been rebooted meanwhile; its own file knows.
		boot, err := f.BootID(was.Name)
		if err != nil {
			return err
		}
		spec := localcluster.NodeSpec{
			Name: was.Name, ProviderID: was.Spec.ProviderID, SystemUUID: was.Status.NodeInfo.SystemUUID, BootID: boot,
		}
		if _, err := f.Cluster.AddNode(ctx, spec); err != nil {
			return err
		}
	}
	if err := f.Cluster.WaitForNodes(ctx, was.Name); err != nil {
		return err
	}
	if err := f.identified(ctx, was.Name); err != nil {
		return err
	}
	return f.attended(ctx, was.Name)
}

// attended returns an error until the simulated kubelet has ended the pods that were deleted
// before it knew the Node. It updates a pod whose deletion the kubelet missed, because the
// kubelet does not check by itself.
func (f *Fleet) attended(ctx context.Context, name string) error {
	client := f.Cluster.Client()
	pods, err := client.CoreV1().Pods(UserNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	var problems []error
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		shown := []byte(`{"metadata":{"annotations":{"shown-again":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`)
		_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, shown, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			problems = append(problems, errors.Join(err, fmt.Errorf("pod %s is on its way out of node %s", p.Name, name)))
		}
	}
	return errors.Join(problems...)
}

// DeleteNode deletes a Node object and makes sure that it is gone.
func (f *Fleet) DeleteNode(ctx context.Context, was *corev1.Node) error {
	node, err := f.Node(ctx, was.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && node.UID != was.UID {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Cluster.Client().CoreV1().Nodes().Delete(ctx, was.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(was.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("node %s is being deleted", was.Name)
}
