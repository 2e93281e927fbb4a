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

// cloud is a provider that keeps a log. It tells every announcement once: whoever
// comes with a checkpoint behind it never hears of it again.
type cloud struct {
	mu     sync.Mutex
	log    []announcement.Announcement
	whole  bool // lists everything that is open, without a checkpoint
	fails  error
	asked  []announcement.Question
	during func()

	names     map[string][]string
	contested [][]string // machines whose names were asked for
}

func (c *cloud) say(all ...announcement.Announcement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, all...)
}

func (c *cloud) Read(_ context.Context, q announcement.Question) (announcement.Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q)
	if c.during != nil {
		c.during()
	}
	if c.fails != nil {
		return announcement.Reading{}, c.fails
	}
	if c.whole {
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

// books is a connector that stores as the real one does: an id once, and never with
// other content.
type books struct {
	protos.PlatformConnectorClient
	t      testing.TB
	events []*protos.HealthEvent
	again  int
}

func (b *books) HealthEventOccurredV1(_ context.Context, in *protos.HealthEvents, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	for _, e := range in.GetEvents() {
		i := slices.IndexFunc(b.events, func(x *protos.HealthEvent) bool { return x.GetId() == e.GetId() })
		if i >= 0 {
			b.again++
			if !proto.Equal(b.events[i], e) {
				b.t.Errorf("event %s was sent again with other content:\n%v\n%v", e.GetId(), b.events[i], e)
			}
			continue
		}
		b.events = append(b.events, proto.CloneOf(e))
	}
	return &emptypb.Empty{}, nil
}

// told lists what the connector stored, in order.
func (b *books) told() (out []string) {
	for _, e := range b.events {
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

// death comes at the n-th effect, before it is carried out or after it.
type death struct {
	at    int // effects until then; negative is never
	after bool
	dead  bool
}

func (d *death) effect(do func() error) error {
	if d == nil {
		return do()
	}
	if d.dead {
		return errDead
	}
	if d.at--; d.at != -1 {
		return do()
	}
	d.dead = true
	if d.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

// mortal is a store whose writer may die.
type mortal struct {
	keeps
	death *death
}

func (m mortal) SaveMaintenances(ctx context.Context, b store.MaintenanceUpdate) error {
	return m.death.effect(func() error { return m.keeps.SaveMaintenances(ctx, b) })
}

// world is one cluster with one monitor.
type world struct {
	t          testing.TB
	csp        string
	cloud      *cloud
	nodes      map[string]*corev1.Node
	store      store.Maintenances
	clock      *testclock.FakeClock
	books      *books
	policy     lifecycle.Policy
	reconciler *reconciler.Reconciler
	metrics    *reconciler.Metrics
	death      *death
	refuse     func(*protos.HealthEvent) error
	// kubelet is what looking at a kubelet shows.
	kubelet func(node string) (kubelet.State, error)
}

func newWorld(t testing.TB, csp string, m store.Maintenances) *world {
	policy := lifecycle.DefaultPolicy()
	policy.Strategy = record.Process
	w := &world{
		t: t, csp: csp, cloud: &cloud{}, nodes: map[string]*corev1.Node{}, store: m, clock: testclock.NewFakeClock(noon), books: &books{t: t}, policy: policy,
	}
	w.kubelet = func(string) (kubelet.State, error) { return kubelet.Alive, nil }
	w.start(nil)
	return w
}

// start begins a new life of the monitor.
func (w *world) start(d *death) {
	w.death, w.metrics = d, reconciler.NewMetrics(nil)
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
// time. It says whether the monitor is alive.
func (w *world) round() bool {
	ctx := w.t.Context()
	w.reconciler.Round(ctx)
	for w.death == nil || !w.death.dead {
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
		err = w.death.effect(func() error {
			_, err := w.books.HealthEventOccurredV1(ctx, &protos.HealthEvents{Events: []*protos.HealthEvent{batch[0].Event}})
			return err
		})
		if err == nil {
			err = w.reconciler.Remove(batch[0].Seq)
		}
		if err != nil && !errors.Is(err, errDead) {
			w.t.Fatal(err)
		}
	}
	return w.death == nil || !w.death.dead
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
	if got := w.books.told(); !slices.Equal(got, want) {
		w.t.Errorf("%s: told are\n%q, want\n%q", what, got, want)
	}
}
