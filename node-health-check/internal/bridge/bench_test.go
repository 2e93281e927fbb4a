package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	check "github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const crds = "../../../distros/helm/nvsentinel/manifests/crds/nvsentinel.dgxc.nvidia.com_healtheventremediations.yaml"

// fakeConnector is a connector: it keeps one event of an id, and refuses one id with another
// content.
type fakeConnector struct {
	mu     sync.Mutex
	events []*protos.HealthEvent
	calls  int
	fails  error // the next call
	loses  bool  // and its answer, after it was stored
}

// HealthEventOccurredV2 is unknown to a connector of an older version.
func (f *fakeConnector) HealthEventOccurredV2(context.Context, *protos.HealthEvents, ...grpc.CallOption) (*protos.HealthEventResults, error) {
	return nil, status.Error(codes.Unimplemented, "unknown method")
}

func (f *fakeConnector) HealthEventOccurredV1(_ context.Context, in *protos.HealthEvents, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	err := f.fails
	if err != nil && !f.loses {
		return nil, err
	}
	for _, e := range in.GetEvents() {
		known := false
		for _, have := range f.events {
			if have.GetId() != e.GetId() {
				continue
			}
			if known = true; have.String() != e.String() {
				return nil, status.Error(codes.InvalidArgument, "one id, and another content")
			}
		}
		if !known {
			f.events = append(f.events, e)
		}
	}
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// bench is a cluster with the kind, a connector and one controller, whose steps the
// test takes itself.
type bench struct {
	*Reconciler
	t         *testing.T
	connector *fakeConnector
	name      string
	uid       types.UID
}

func newBench(t *testing.T, name string) *bench {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	file, err := os.Open(crds)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := cluster.Apply(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	live, err := client.New(cluster.RESTConfig(), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, connector: &fakeConnector{}, name: name}
	b.Reconciler = New(Deps{
		Live: live, Connector: b.connector, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	b.cached = live
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := live.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Delete(context.WithoutCancel(t.Context()), node) })
	return b
}

// make makes the remediation as a NodeHealthCheck does.
func (b *bench) make(spec v1alpha1.HealthEventRemediationSpec) {
	b.t.Helper()
	o := &v1alpha1.HealthEventRemediation{ObjectMeta: metav1.ObjectMeta{
		Name: b.name, Annotations: map[string]string{check.NodeNameAnnotation: b.name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: check.GroupVersion.String(), Kind: check.Kind, Name: "workers", UID: "6f0cdd4e-0000-4000-8000-000000000001"}},
	}, Spec: spec}
	if err := b.Live.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
	b.uid = o.UID
}

// pass takes the object as far as it goes.
func (b *bench) pass() error {
	b.t.Helper()
	for range 10 {
		again, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: b.name}})
		if err != nil || again.RequeueAfter == 0 {
			return err
		}
	}
	return errors.New("it comes to no end")
}

func (b *bench) object() *v1alpha1.HealthEventRemediation {
	b.t.Helper()
	o := &v1alpha1.HealthEventRemediation{}
	err := b.Live.Get(b.t.Context(), types.NamespacedName{Name: b.name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// expectConditions checks the conditions.
func (b *bench) expectConditions(reason string, processing, succeeded metav1.ConditionStatus) {
	b.t.Helper()
	o := b.object()
	p := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionProcessing)
	s := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionSucceeded)
	if p == nil || s == nil || p.Status != processing || s.Status != succeeded || s.Reason != reason {
		b.t.Errorf("conditions %+v, want %s, processing %s, succeeded %s", o.Status.Conditions, reason, processing, succeeded)
	}
}

// mark sets the state of the node's quarantine.
func (b *bench) mark(state nodemark.State) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, nodemark.StateLabel, state))
	if err := b.Live.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.name}}, patch); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) remove() {
	b.t.Helper()
	if err := b.Live.Delete(b.t.Context(), b.object()); err != nil {
		b.t.Fatal(err)
	}
}

// expectRemoved checks that the object went after exactly one fault and its recovery.
func (b *bench) expectRemoved(strategy protos.ProcessingStrategy) {
	b.t.Helper()
	if o := b.object(); o != nil {
		b.t.Errorf("it is still there: %+v", o)
	}
	if len(b.connector.events) != 2 || b.connector.events[0].GetIsHealthy() || !b.connector.events[1].GetIsHealthy() ||
		b.connector.events[0].GetProcessingStrategy() != strategy || b.connector.events[1].GetProcessingStrategy() != strategy {
		b.t.Errorf("events %v", b.connector.events)
	}
}
