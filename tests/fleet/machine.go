package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// Returned brings a deleted machine back under its name: a new Node object of
// the same machine, as a kubelet makes it that registers again. Its processes
// and disks were there all the time.
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
	return f.Cluster.WaitForNodes(ctx, was.Name)
}

// Gone deletes a Node object and makes sure that it is gone.
func (f *Fleet) Gone(ctx context.Context, was *corev1.Node) error {
	node, err := f.Node(ctx, was.Name)
	if apierrors.IsNotFound(err) || err == nil && node.UID != was.UID {
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
