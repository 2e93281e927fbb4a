package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func node(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

// newPlugin is a plugin of some Nodes, and how many claims of a kind it has counted.
func newPlugin(provider AsyncProvider, nodes ...runtime.Object) (*Plugin, func(Finding) float64) {
	metrics := NewMetrics(prometheus.NewRegistry())
	p := &Plugin{
		Provider: provider, Client: fake.NewClientset(nodes...), Proof: Proof{NodeNameFrom: []string{"name"}}, Log: slog.New(slog.DiscardHandler), Metrics: metrics,
	}
	return p, func(f Finding) float64 { return testutil.ToFloat64(metrics.Claims.WithLabelValues(string(f))) }
}

// namedCloud is a cloud whose machines are written with any prefix before a colon.
type namedCloud struct {
	AsyncProvider
	id  Identity
	err error
}

func (n namedCloud) Identity(context.Context, string) (Identity, error) { return n.id, n.err }

func (namedCloud) Canonical(machine string) (string, error) {
	_, one, ok := strings.Cut(machine, ":")
	if !ok {
		return "", Malformed(machine, "x:ID")
	}
	return one, nil
}

// Every spelling of a machine is the same machine; each claim that is not proven is counted
// and named; and what could not be looked at is no proof, nor a refusal for good.
func TestBelieve(t *testing.T) {
	id := Identity{Names: map[string][]string{"name": {"gpu-1", "gpu-1.internal"}}}
	for _, tt := range []struct {
		what     string
		node     *corev1.Node
		others   []runtime.Object
		cloudErr error
		want     codes.Code
		words    string
		counted  map[Finding]float64
	}{
		{"its own", node("gpu-1", "a:1"), []runtime.Object{node("gpu-2", "a:2"), node("gpu-3", "")}, nil, codes.OK, "", nil},
		{"claimed by another", node("gpu-1", "a:1"), []runtime.Object{node("evil", "b:1"), node("evil2", "a:1")}, nil, codes.OK, "", map[Finding]float64{Unproven: 2}},
		{"the claimant", node("evil", "b:1"), []runtime.Object{node("gpu-1", "a:1")}, nil, codes.FailedPrecondition, `also claimed by nodes "gpu-1"`, map[Finding]float64{Unproven: 1, Proven: 1}},
		{"two of its names", node("gpu-1", "a:1"), []runtime.Object{node("gpu-1.internal", "b:1")}, nil, codes.FailedPrecondition, `nodes "gpu-1", "gpu-1.internal" claim machine`, map[Finding]float64{Undecided: 1, Proven: 1}},
		{"the cloud does not say", node("gpu-1", "a:1"), nil, status.Error(codes.Unavailable, "it burns"), codes.Aborted, "it burns", nil},
		{"the cloud denies", node("gpu-1", "a:1"), nil, status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied, "no", nil},
		{"of no machine", node("gpu-1", "a"), nil, nil, codes.FailedPrecondition, "is not a machine of this cloud", nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p, counted := newPlugin(namedCloud{id: id, err: tt.cloudErr}, append(tt.others, tt.node)...)
			err := p.believe(t.Context(), tt.node)
			if status.Code(err) != tt.want || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("%v, want %s: %s", err, tt.want, tt.words)
			}
			for _, f := range []Finding{Proven, Unproven, OtherCluster, Undecided} {
				if got := counted(f); got != tt.counted[f] {
					t.Errorf("%v claims were counted as %s, want %v", got, f, tt.counted[f])
				}
			}
		})
	}
	p, _ := newPlugin(namedCloud{id: id})
	p.Client.(*fake.Clientset).PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("it burns") })
	if err := p.believe(t.Context(), node("gpu-1", "a:1")); status.Code(err) != codes.Aborted {
		t.Errorf("without the other nodes: %v, want Aborted", err)
	}
}

// A message names a few nodes, however many claim a machine.
func TestManyClaimsMakeAShortMessage(t *testing.T) {
	nodes := []runtime.Object{}
	for i := range 1000 {
		nodes = append(nodes, node(fmt.Sprintf("evil-%d", i), "a:1"))
	}
	p, _ := newPlugin(namedCloud{}, nodes...)
	err := p.believe(t.Context(), node("evil-0", "a:1"))
	if status.Code(err) != codes.FailedPrecondition || len(err.Error()) > 600 || !strings.Contains(err.Error(), "994 more") {
		t.Errorf("%v", err)
	}
}

// rack is hardware of which every Node but the first may be a rival.
type rack struct {
	Provider
	mu        sync.Mutex
	now, most int
	confirmed func(ctx context.Context, name string) bool
}

func (*rack) Machine(*corev1.Node) (string, error)                          { return "node://gpu-1", nil }
func (*rack) Rivals(one, other *corev1.Node) bool                           { return true }
func (*rack) Examine(context.Context, string, *corev1.Node) (string, error) { return "mark", nil }

func (r *rack) Confirmed(ctx context.Context, node *corev1.Node) bool {
	r.mu.Lock()
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	defer func() { r.mu.Lock(); r.now--; r.mu.Unlock() }()
	return r.confirmed(ctx, node.Name)
}

// Rivals that do not answer hold up nobody: they are given up, and are no reason to refuse
// a machine that is proven. One that is confirmed is.
func TestRivalsOfHardware(t *testing.T) {
	const many = 100
	nodes := []runtime.Object{node("gpu-1", "")}
	for i := range many {
		nodes = append(nodes, node(fmt.Sprintf("rival-%03d", i), ""))
	}
	r := &rack{confirmed: func(ctx context.Context, _ string) bool { <-ctx.Done(); return false }}
	p, counted := newPlugin(direct{r}, nodes...)
	synctest.Test(t, func(t *testing.T) {
		mark, err := p.examine(t.Context(), r, "node://gpu-1", node("gpu-1", ""))
		if mark != "mark" || err != nil || r.most > rivalsAtOnce || counted(Unproven) != many {
			t.Errorf("with silent rivals: %q, %v; %d looks at once, %v counted", mark, err, r.most, counted(Unproven))
		}
	})
	r.confirmed = func(_ context.Context, name string) bool { return name == "rival-042" }
	if _, err := p.examine(t.Context(), r, "node://gpu-1", node("gpu-1", "")); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"gpu-1", "rival-042"`) {
		t.Errorf("with a confirmed rival: %v, want FailedPrecondition with both", err)
	}
}
