package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/store-client/store"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// cloud is a provider that keeps a log. It reports every announcement once: a reader that
// comes with a checkpoint behind it never gets it again.
type cloud struct {
	mu        sync.Mutex
	log       []announcement.Announcement
	complete  bool // lists everything that is open, without a checkpoint
	fails     error
	questions []announcement.Question
	during    func()

	names     map[string][]string
	contested [][]string // machines whose names were asked for
}

func (c *cloud) announce(all ...announcement.Announcement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, all...)
}

func (c *cloud) Read(_ context.Context, q announcement.Question) (announcement.Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.questions = append(c.questions, q)
	if c.during != nil {
		c.during()
	}
	if c.fails != nil {
		return announcement.Reading{}, c.fails
	}
	if c.complete {
		return announcement.Reading{Announcements: c.log, Complete: true, Calls: 1}, nil
	}
	from := 0
	if q.Checkpoint != "" {
		var err error
		if from, err = strconv.Atoi(q.Checkpoint); err != nil {
			return announcement.Reading{}, err
		}
	}
	return announcement.Reading{Announcements: c.log[from:], Checkpoint: strconv.Itoa(len(c.log)), Calls: 1}, nil
}

func (c *cloud) Machine(providerID string) (string, bool) { return providerID, providerID != "" }
func (c *cloud) Check(context.Context) error              { return c.fails }

func (c *cloud) Names(_ context.Context, machines []string) (map[string][]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contested = append(c.contested, machines)
	if c.fails != nil {
		return nil, c.fails
	}
	return c.names, nil
}

func planned(id, machine string, state announcement.State, edit ...func(*announcement.Announcement)) announcement.Announcement {
	a := announcement.Announcement{ID: id, Machine: machine, Code: "REBOOT", State: state, Action: protos.RecommendedAction_RESTART_VM, Text: "text"}
	for _, f := range edit {
		f(&a)
	}
	return a
}

func begins(after time.Duration) func(*announcement.Announcement) {
	return func(a *announcement.Announcement) { a.Begin = noon.Add(after) }
}

// fakeConnector is a connector that stores as the real one does: an id once, and never with
// other content.
type fakeConnector struct {
	protos.PlatformConnectorClient
	t      testing.TB
	events []*protos.HealthEvent
	again  int
}

func (f *fakeConnector) HealthEventOccurredV1(_ context.Context, in *protos.HealthEvents, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	for _, e := range in.GetEvents() {
		i := slices.IndexFunc(f.events, func(x *protos.HealthEvent) bool { return x.GetId() == e.GetId() })
		if i >= 0 {
			f.again++
			if !proto.Equal(f.events[i], e) {
				f.t.Errorf("event %s was sent again with other content:\n%v\n%v", e.GetId(), f.events[i], e)
			}
			continue
		}
		f.events = append(f.events, proto.CloneOf(e))
	}
	return &emptypb.Empty{}, nil
}

// storedEvents lists what the connector stored, in order.
func (f *fakeConnector) storedEvents() (out []string) {
	for _, e := range f.events {
		kind := "fault"
		if e.GetIsHealthy() {
			kind = "healthy"
		} else if !e.GetIsFatal() {
			kind = "notice"
		}
		out = append(out, fmt.Sprintf("%s %s %s", kind, e.GetNodeName(), e.GetEntitiesImpacted()[len(e.GetEntitiesImpacted())-1].GetEntityValue()))
	}
	return out
}

// errDead is what a dead process sees of the world.
var errDead = errors.New("the process is dead")

// crash comes at the n-th effect, before it is carried out or after it.
type crash struct {
	at    int // effects until then; negative is never
	after bool
	dead  bool
}

func (c *crash) effect(do func() error) error {
	if c == nil {
		return do()
	}
	if c.dead {
		return errDead
	}
	if c.at--; c.at != -1 {
		return do()
	}
	c.dead = true
	if c.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

// mortal is a store whose writer may die.
type mortal struct {
	keeps
	crash *crash
}

func (m mortal) SaveMaintenances(ctx context.Context, b store.MaintenanceUpdate) error {
	return m.crash.effect(func() error { return m.keeps.SaveMaintenances(ctx, b) })
}

// world is one cluster with one monitor.
type world struct {
	t          testing.TB
	csp        string
	cloud      *cloud
	nodes      map[string]*corev1.Node
	store      store.Maintenances
	clock      *testclock.FakeClock
	connector  *fakeConnector
	policy     lifecycle.Policy
	reconciler *reconciler.Reconciler
	metrics    *reconciler.Metrics
	crash      *crash
	refuse     func(*protos.HealthEvent) error
	// kubelet is what looking at a kubelet shows.
	kubelet func(node string) (kubelet.State, error)
}

func newWorld(t testing.TB, csp string, m store.Maintenances) *world {
	policy := lifecycle.DefaultPolicy()
	policy.Strategy = record.Process
	w := &world{
		t: t, csp: csp, cloud: &cloud{}, nodes: map[string]*corev1.Node{}, store: m, clock: testclock.NewFakeClock(noon), connector: &fakeConnector{t: t}, policy: policy,
	}
	w.kubelet = func(string) (kubelet.State, error) { return kubelet.Alive, nil }
	w.start(nil)
	return w
}

// start begins a new life of the monitor.
func (w *world) start(d *crash) {
	w.crash, w.metrics = d, reconciler.NewMetrics(nil)
	w.reconciler = reconciler.New(reconciler.Options{
		Source: w.cloud, Origin: lifecycle.Origin{CSP: w.csp, Cluster: "c", ResourceType: "machine"}, Store: mortal{w.store, d},
		Fleet: func() reconciler.Fleet { return reconciler.Of(slices.Collect(maps.Values(w.nodes)), w.cloud.Machine) }, Policy: w.policy,
		Kubelet:  func(_ context.Context, name string) (kubelet.State, error) { return w.kubelet(name) },
		NodeName: "monitor", Poll: time.Minute, Rounds: time.Minute, Clock: w.clock, Log: slog.New(slog.DiscardHandler), Metrics: w.metrics,
	})
}

// node makes or changes a Node whose machine has the same name with i- before it.
func (w *world) node(name string, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	w.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "i-" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
}

// round is a round of the monitor and what its publisher does then, one event at a
// time. It reports whether the monitor is alive.
func (w *world) round() bool {
	ctx := w.t.Context()
	w.reconciler.Round(ctx)
	for w.crash == nil || !w.crash.dead {
		batch, err := w.reconciler.Peek(0, 1, 1<<20)
		if err != nil || len(batch) == 0 {
			break
		}
		var refused error
		if w.refuse != nil {
			refused = w.refuse(batch[0].Event)
		}
		if refused != nil {
			if err := w.reconciler.Bury(batch[0].Seq, refused.Error()); err != nil {
				w.t.Fatal(err)
			}
			continue
		}
		err = w.crash.effect(func() error {
			_, err := w.connector.HealthEventOccurredV1(ctx, &protos.HealthEvents{Events: []*protos.HealthEvent{batch[0].Event}})
			return err
		})
		if err == nil {
			err = w.reconciler.Remove(batch[0].Seq)
		}
		if err != nil && !errors.Is(err, errDead) {
			w.t.Fatal(err)
		}
	}
	return w.crash == nil || !w.crash.dead
}

// pass lets time go by, a round every minute.
func (w *world) pass(d time.Duration) {
	for range d / time.Minute {
		w.clock.Step(time.Minute)
		w.round()
	}
}

func (w *world) want(what string, want ...string) {
	w.t.Helper()
	if got := w.connector.storedEvents(); !slices.Equal(got, want) {
		w.t.Errorf("%s: told are\n%q, want\n%q", what, got, want)
	}
}
