package reconciler

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/node-health-check/api/v1alpha1"
)

// lister lists the checks that it holds.
type lister struct {
	client.Reader
	checks []v1alpha1.NodeHealthCheck
}

func (l lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.NodeHealthCheckList).Items = l.checks
	return nil
}

// later remembers after how long a pass is due.
type later struct {
	queue
	added map[reconcile.Request]time.Duration
}

func (q *later) AddAfter(check reconcile.Request, after time.Duration) {
	if q.added == nil {
		q.added = map[reconcile.Request]time.Duration{}
	}
	q.added[check] = after
}

// TestWhomANodeMattersTo: a node that changes its labels matters to the checks that
// select it now and to those that did before, and one that goes to all. Their passes wait
// for other nodes' changes.
func TestWhomANodeMattersTo(t *testing.T) {
	pool := func(name string) v1alpha1.NodeHealthCheck {
		return v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeHealthCheckSpec{
			Selector: v1alpha1.NodeSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": v1alpha1.LabelValue(name)}},
		}}
	}
	node := func(pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": pool}}}
	}
	m := &mapper{checks: lister{checks: []v1alpha1.NodeHealthCheck{pool("a"), pool("b"), pool("c")}}, log: slog.New(slog.DiscardHandler)}
	handler := m.ofNodes()
	tests := map[string]struct {
		happens func(queue)
		want    []string
	}{
		"it is new":            {func(q queue) { handler.Create(t.Context(), event.CreateEvent{Object: node("a")}, q) }, []string{"a"}},
		"it changes":           {func(q queue) { handler.Update(t.Context(), update(node("b"), node("b")), q) }, []string{"b"}},
		"it moves":             {func(q queue) { handler.Update(t.Context(), update(node("a"), node("b")), q) }, []string{"a", "b"}},
		"it leaves all":        {func(q queue) { handler.Update(t.Context(), update(node("c"), node("")), q) }, []string{"c"}},
		"it is of no interest": {func(q queue) { handler.Update(t.Context(), update(node("x"), node("y")), q) }, nil},
		"it goes":              {func(q queue) { handler.Delete(t.Context(), event.DeleteEvent{Object: node("a")}, q) }, []string{"a", "b", "c"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q := &later{}
			tt.happens(q)
			var got []string
			for check, after := range q.added {
				if got = append(got, check.Name); after != gathering {
					t.Errorf("%s has its pass after %s, want %s", check.Name, after, gathering)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("enqueued %v, want %v", got, tt.want)
			}
		})
	}
}
