package reconciler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// Two checks that select the same nodes, each looked after by a controller of its own,
// and fault-remediation race for every node: no node ever has two repairs.
func TestOneRepairPerNode(t *testing.T) { raceFor(t, 20, 2) }

func TestAThousandRacesForANode(t *testing.T) {
	testkit.Long(t, "TestOneRepairPerNode, with 40 races, and nodelease's TestAThousandRaces")
	raceFor(t, 100, 10)
}

// races has fault-remediation claim a node at the moment at which a check does.
type races struct {
	*world
	namespace string
	nodes     map[string]*corev1.Node
	nodeNames []string
	repairs   sync.WaitGroup

	mu    sync.Mutex
	begun map[string]bool // of this round
	lost  int             // by fault-remediation
}

func raceFor(t *testing.T, size, rounds int) {
	t.Helper()
	w := newWorld(t, "races")
	r := &races{world: w, namespace: w.cluster.Namespace(t), nodes: map[string]*corev1.Node{}}
	for i := range size {
		name := w.node(fmt.Sprintf("%03d", i))
		node, err := w.cluster.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.nodes[nodelease.Name(name)], r.nodeNames = node, append(r.nodeNames, name)
	}
	first, second := w.template(rebootKind, ""), w.template(selfKind, r.namespace)
	w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &first })
	too := *w // a check of another name, of the same nodes
	too.prefix = "races-too"
	too.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.RemediationTemplate, s.Selector.MatchLabels["pool"] = &second, v1alpha1.LabelValue(w.prefix)
	})
	for _, name := range []string{w.prefix, too.prefix} {
		w.start(r.meet, func(c *Reconciler) { c.Live = oneCheck{c.Live, name} })
	}
	for _, name := range []string{w.prefix, too.prefix} {
		w.settle(name, "the check works", phase(v1alpha1.PhaseEnabled))
	}
	won := map[string]int{}
	for round := range rounds {
		r.begun = map[string]bool{}
		r.all(w.fall)
		r.oneEach(round, won)
		r.over()
	}
	t.Logf("of %d races won %v", size*rounds, won)
	if r.lost == 0 || r.lost == size*rounds {
		t.Errorf("fault-remediation lost %d of %d races: there was none", r.lost, size*rounds)
	}
}

// oneCheck shows one check and no other.
type oneCheck struct {
	client.Client
	name string
}

func (c oneCheck) Get(ctx context.Context, key types.NamespacedName, o client.Object, options ...client.GetOption) error {
	if o.GetObjectKind().GroupVersionKind() == v1alpha1.GroupVersion.WithKind(v1alpha1.Kind) && key.Name != c.name {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodehealthchecks"}, key.Name)
	}
	return c.Client.Get(ctx, key, o, options...)
}

// meet has a controller's claims seen.
func (r *races) meet(config *rest.Config, d *Deps) {
	seen := rest.CopyConfig(config)
	seen.ContentType = "application/json" // which the test reads
	seen.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(q *http.Request) (*http.Response, error) {
			if q.Method == http.MethodPost || q.Method == http.MethodPut {
				r.claimed(body(q))
			}
			return next.RoundTrip(q)
		})
	})
	client, err := kubernetes.NewForConfig(seen)
	if err != nil {
		r.t.Error(err)
	}
	d.Claims.Client = client
}

// claimed begins fault-remediation's claim, once for each node and round.
func (r *races) claimed(lease string) {
	l := &coordinationv1.Lease{}
	if err := json.Unmarshal([]byte(lease), l); err != nil {
		r.t.Errorf("%q: %v", lease, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if node := r.nodes[l.Name]; node != nil && !r.begun[node.Name] {
		r.begun[node.Name] = true
		r.repairs.Go(func() { r.repair(node) })
	}
}

// repair does what fault-remediation does before it creates a maintenance object, and
// creates it. The node is not in quarantine, which would keep the checks off too.
func (r *races) repair(node *corev1.Node) {
	ctx := r.t.Context()
	claims := nodelease.Claims{Client: r.cluster.Client(), Namespace: r.leases, Clock: r.clock}
	err := claims.Take(ctx, node, "fault-remediation", time.Hour, nil)
	if _, is := nodelease.Taken(err); is {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost++
		return
	}
	if err == nil {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(deletionKind)
		o.SetNamespace(r.namespace)
		o.SetName(node.Name)
		err = r.live.Create(ctx, o)
	}
	if err != nil {
		r.t.Error(err)
	}
}

// all does something to all nodes, to some of them at once.
func (r *races) all(do func(node string)) {
	const lanes = 8
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := lane; i < len(r.nodeNames); i += lanes {
				do(r.nodeNames[i])
			}
		})
	}
	all.Wait()
}

// oneEach waits until every node has a repair, and counts them.
func (r *races) oneEach(round int, won map[string]int) {
	r.t.Helper()
	kinds := []schema.GroupVersionKind{rebootKind, selfKind, deletionKind}
	found := func() map[string][]string {
		out := map[string][]string{}
		for _, kind := range kinds {
			for _, o := range r.objects(kind) {
				out[o.GetName()] = append(out[o.GetName()], kind.Kind)
			}
		}
		return out
	}
	testkit.Until(r.t, waitTimeout, func() bool { return len(found()) == len(r.nodes) })
	r.repairs.Wait()
	// The passes that listed every node have begun all that they would.
	for _, name := range []string{r.prefix, "races-too"} {
		r.settle(name, "every node is listed", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == len(r.nodes) })
	}
	for name, all := range found() {
		if len(all) != 1 {
			r.t.Errorf("round %d: node %s has %v", round, name, all)
		}
		won[all[0]]++
	}
}

// over has all nodes recover, and fault-remediation give back what it has.
func (r *races) over() {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	r.all(r.heal)
	leases := r.cluster.Client().CoordinationV1().Leases(r.leases)
	for _, o := range r.objects(deletionKind) {
		if err := r.live.Delete(ctx, &o); err != nil {
			r.t.Fatal(err)
		}
		if err := leases.Delete(ctx, nodelease.Name(o.GetName()), metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	testkit.Until(r.t, waitTimeout, func() bool {
		left, err := leases.List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0 && len(r.objects(rebootKind))+len(r.objects(selfKind)) == 0
	})
	for _, name := range []string{r.prefix, "races-too"} {
		r.settle(name, "all is well", phase(v1alpha1.PhaseEnabled))
	}
}
