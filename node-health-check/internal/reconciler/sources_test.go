package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// lister lists the checks that it holds, and has nodes by name in a pool.
type lister struct {
	client.Reader
	checks []v1alpha1.NodeHealthCheck
	pools  map[string]string
}

func (l lister) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	pool, there := l.pools[key.Name]
	if !there {
		return errors.New("no such node")
	}
	o.SetLabels(map[string]string{"pool": pool})
	return nil
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

func (q *later) Add(check reconcile.Request) { q.AddAfter(check, 0) }

func (q *later) AddAfter(check reconcile.Request, after time.Duration) {
	if q.added == nil {
		q.added = map[reconcile.Request]time.Duration{}
	}
	q.added[check] = after
}

// TestChecksOfANode: a node that changes its labels matters to the checks that
// select it now and to those that did before, and one that goes to all. Their passes wait
// for other nodes' changes.
func TestChecksOfANode(t *testing.T) {
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

// TestWaitingChecks: the end of a remediation matters to its owner, and to every check
// of a template of its kind that selects its node; that of a lease to every check that
// selects the node.
func TestWaitingChecks(t *testing.T) {
	check := func(name, pool, kind string) v1alpha1.NodeHealthCheck {
		return v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeHealthCheckSpec{
			Selector:            v1alpha1.NodeSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": v1alpha1.LabelValue(pool)}},
			RemediationTemplate: &v1alpha1.TemplateReference{APIVersion: rebootKind.GroupVersion().String(), Kind: kind, Name: "x"},
		}}
	}
	m := &mapper{log: slog.New(slog.DiscardHandler), checks: lister{
		checks: []v1alpha1.NodeHealthCheck{check("a", "a", "RebootNodeTemplate"), check("a-too", "a", "RebootNodeTemplate"), check("a-other", "a", "FixTemplate"), check("b", "b", "RebootNodeTemplate")},
		pools:  map[string]string{"n-a": "a", "n-b": "b", "n-c": "c"},
	}}
	remediation := func(name, node string, owners ...string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(rebootKind)
		o.SetName(name)
		if node != "" {
			o.SetAnnotations(map[string]string{v1alpha1.NodeNameAnnotation: node})
		}
		for _, owner := range owners {
			o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: owner}))
		}
		return o
	}
	tests := map[string]struct {
		handler handler.EventHandler
		gone    client.Object
		want    []string
	}{
		"one that nobody owns":             {m.ofRemediations(), remediation("n-a", ""), []string{"a", "a-too"}},
		"one of a check of another pool":   {m.ofRemediations(), remediation("n-b", "n-b", "a"), []string{"a", "b"}},
		"one whose name is another node's": {m.ofRemediations(), remediation("n-a", "n-b"), []string{"a", "a-too", "b"}},
		"one of a node that is gone":       {m.ofRemediations(), remediation("n-z", "", "b"), []string{"b"}},
		"one of a node that nobody checks": {m.ofRemediations(), remediation("n-c", ""), nil},
		"a lease":                          {m.ofLeases(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node-n-a"}}, []string{"a", "a-other", "a-too"}},
		"a lease of no node":               {m.ofLeases(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n-a"}}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q := &later{}
			tt.handler.Delete(t.Context(), event.DeleteEvent{Object: tt.gone}, q)
			var got []string
			for check := range q.added {
				got = append(got, check.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("enqueued %v, want %v", got, tt.want)
			}
		})
	}
}
