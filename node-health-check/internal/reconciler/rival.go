package reconciler

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// rivalLease is what medik8s' operator of NodeHealthChecks elects its leader by.
const rivalLease = "e1f13584.medik8s.io"

// rival returns who else acts on NodeHealthChecks: medik8s' operator, if it runs in the
// cluster. Two programs that act on the same checks would undo each other's work.
func rival(ctx context.Context, c kubernetes.Interface, now time.Time) (string, error) {
	leases, err := c.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, rivalLease).String(),
	})
	if err != nil {
		return "", fmt.Errorf("checking for another operator of NodeHealthChecks: %w", err)
	}
	for _, l := range leases.Items {
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		if holder == "" || l.Spec.RenewTime == nil || now.After(l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second)) {
			continue
		}
		return fmt.Sprintf("%s, which holds lease %s/%s", holder, l.Namespace, l.Name), nil
	}
	return "", nil
}
