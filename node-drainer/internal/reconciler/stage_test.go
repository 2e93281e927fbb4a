package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// scratch is a folder for all tests of this binary.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "drainer"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	return localcluster.Main(m)
}

// stage is a node with its records, on a real API server with simulated pods,
// and a drainer at work.
type stage struct {
	t       *testing.T
	cluster *localcluster.Cluster
	records *counted
	loop    atomic.Pointer[consume.Loop[record.Record]]
	world   atomic.Pointer[reconciler.Cluster]
	// node is the name of the node, ns a namespace of mode Immediate.
	node, ns string
	restart  func(change ...func(*reconciler.Config))
	// stop ends the drainer that runs; dsn is the address of the store.
	stop func()
	dsn  string
	// wrap and clock change how the next drainer sees the API server and time.
	wrap  transport.WrapperFunc
	clock clock.Clock
	pause *pause.Switch // of the next drainer
}

// counted counts the reads of the store.
type counted struct {
	store.Store
	lists atomic.Int64
}

func (c *counted) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, q)
}

var nodes atomic.Int64

// newStage sets a stage; rules are added to "the stage's own namespace:
// Immediate".
func newStage(t *testing.T, rules ...eviction.NamespaceRule) *stage {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{Controllers: true, Nodes: 1, NodePrefix: "spare"})
	s := &stage{t: t, cluster: cluster, node: fmt.Sprintf("drain-%d", nodes.Add(1)), ns: cluster.Namespace(t), clock: clock.RealClock{}}
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: s.node}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.DeleteNode(context.Background(), s.node); err != nil {
			t.Error(err)
		}
	})
	s.dsn = "sqlite://" + filepath.Join(t.TempDir(), "records.db")
	db, err := storeopen.Open(t.Context(), s.dsn, storeopen.Options{SingleHost: true, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s.records = &counted{Store: db}
	file := eviction.Default()
	file.UserNamespaces = append([]eviction.NamespaceRule{{Name: s.ns, Mode: eviction.Immediate}}, rules...)
	policy, err := file.Compile()
	if err != nil {
		t.Fatal(err)
	}
	config := reconciler.Config{Policy: decision.DefaultPolicy(policy), PerNode: 16, InFlight: 128}
	config.Policy.ReportEvery = 50 * time.Millisecond
	s.restart = s.run(config)
	s.restart()
	return s
}

// run returns what stops the drainer that runs, if any, and starts another.
func (s *stage) run(config reconciler.Config) func(...func(*reconciler.Config)) {
	s.stop = func() {}
	s.t.Cleanup(func() { s.stop() })
	return func(change ...func(*reconciler.Config)) {
		s.stop()
		for _, c := range change {
			c(&config)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		s.stop = func() { cancel(); <-ended }
		eyes := sight{s.records, s.wrap, s.clock, s.pause}
		go func() {
			defer close(ended)
			s.work(ctx, config, eyes)
		}()
	}
}

// sight is how one drainer sees records, API server and time. It is taken
// before the drainer starts: the test changes the stage's for the next.
type sight struct {
	records *counted
	wrap    transport.WrapperFunc
	clock   clock.Clock
	pause   *pause.Switch
}

func (s *stage) work(ctx context.Context, config reconciler.Config, eyes sight) {
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			s.t.Errorf("the drainer broke: %v", err)
		}
	}
	rest := s.cluster.RESTConfig()
	if eyes.wrap != nil {
		rest.Wrap(eyes.wrap)
	}
	client, err := kube.ForConfig(rest, kube.Config{}, "test")
	fail(err)
	cluster, err := reconciler.NewCluster(client.Clientset)
	fail(err)
	go func() { fail(cluster.Run(ctx)) }()
	if cluster.WaitForSync(ctx) != nil {
		return
	}
	s.world.Store(cluster)
	registry := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	events := eventrecorder.New(client.Clientset, eventrecorder.Component("node-drainer"), eyes.clock, log, registry)
	go func() { fail(events.Run(ctx)) }()
	own := &consumer.Records{Store: eyes.records, Writer: record.NodeDrainer}
	drains := reconciler.New(config, reconciler.Deps{
		Records: own, Client: client.Clientset, Cluster: cluster,
		Clock: eyes.clock, Log: log, Metrics: reconciler.NewMetrics(registry), Pause: eyes.pause, Events: events,
	})
	loop := drains.Service("node-drainer", 0).Loop(&daemon.Daemon{Clock: clock.RealClock{}, Log: log, Registry: registry})
	s.loop.Store(loop)
	fail(loop.Run(ctx))
}

// handle makes the drainer look at the node, and waits for the end of a look
// that began after the call: looks at one node come one after the other.
func (s *stage) handle() {
	s.t.Helper()
	for range 3 {
		before := s.records.lists.Load()
		s.eventually(func() error {
			if loop := s.loop.Load(); loop != nil {
				loop.Enqueue(s.node)
			}
			if s.records.lists.Load() == before {
				return errors.New("the drainer has not looked")
			}
			return nil
		})
	}
}

// fault stores a fault as fault-quarantine leaves it: matched, with a cordon.
func (s *stage) fault(id, session string, change ...func(*record.Record)) {
	s.t.Helper()
	r := record.Record{ID: id, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	r.Event = record.Event{ID: id, NodeName: s.node, Agent: "test", CheckName: "check", IsFatal: true, ProcessingStrategy: record.Process}
	for _, c := range change {
		c(&r)
	}
	if _, err := s.records.Append(s.t.Context(), []record.Record{r}); err != nil {
		s.t.Fatal(err)
	}
	s.quarantine(id, func(st *record.Status) {
		st.NodeQuarantined = record.AlreadyQuarantined
		if id == session {
			st.NodeQuarantined = record.Quarantined
		}
		st.Session = session
		st.Faults = []record.Fault{{Key: "k"}}
		st.QuarantineVerdict = &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}, At: time.Now()}
	})
}

// clear ends a fault's quarantine as a recovery does.
func (s *stage) clear(id string) {
	s.t.Helper()
	at := time.Now()
	s.quarantine(id, func(st *record.Status) {
		st.Faults = []record.Fault{{Key: "k", ClearedTimestamp: &at, ClearedBy: "recovery"}}
	})
}

// quarantine updates a record as fault-quarantine, even if others update it meanwhile.
func (s *stage) quarantine(id string, change func(*record.Status)) {
	s.t.Helper()
	s.write(id, record.FaultQuarantine, change)
}

func (s *stage) write(id string, as record.Writer, change func(*record.Status)) {
	s.t.Helper()
	s.eventually(func() error {
		r, err := s.records.Get(s.t.Context(), id)
		if err != nil {
			return err
		}
		change(&r.Status)
		_, err = s.records.Update(s.t.Context(), as, []store.Change{{ID: id, Revision: r.Revision, Status: r.Status}})
		return err
	})
}

// patch writes the Node as fault-quarantine or a person does.
func (s *stage) patch(change func(*corev1.Node)) {
	s.t.Helper()
	s.eventually(func() error {
		n, err := kube.ReadNode(s.t.Context(), s.cluster.Client(), s.node)
		if err != nil {
			return err
		}
		_, err = kube.PatchNode(s.t.Context(), s.cluster.Client(), n, change)
		return err
	})
}

func (s *stage) mark(session string) {
	s.t.Helper()
	s.patch(func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[nodemark.SessionAnnotation] = session
		n.Annotations[nodemark.QuarantineHealthEventIsCordoned] = nodemark.True
		n.Labels[nodemark.StateLabel] = string(nodemark.Quarantined)
	})
}

func (s *stage) release() {
	s.t.Helper()
	s.patch(func(n *corev1.Node) {
		n.Spec.Unschedulable = false
		delete(n.Annotations, nodemark.SessionAnnotation)
		delete(n.Annotations, nodemark.QuarantineHealthEventIsCordoned)
		delete(n.Labels, nodemark.StateLabel)
	})
}

// pod runs on the node.
func (s *stage) pod(spec localcluster.PodSpec) {
	s.t.Helper()
	spec = s.add(spec)
	if _, err := s.cluster.WaitForPods(s.t.Context(), spec.Namespace, spec.Name, 1); err != nil {
		s.t.Fatal(err)
	}
}

// add creates a pod on the node, and does not wait for it: the drainer may evict it before
// it runs.
func (s *stage) add(spec localcluster.PodSpec) localcluster.PodSpec {
	s.t.Helper()
	spec.Node = s.node
	if spec.Namespace == "" {
		spec.Namespace = s.ns
	}
	if _, err := s.cluster.AddPod(s.t.Context(), spec); err != nil {
		s.t.Fatal(err)
	}
	return spec
}

// waitCached waits until the drainer's cache shows so many pods of the node: what
// it counts at its start is what it reports later.
func (s *stage) waitCached(count int) {
	s.t.Helper()
	s.eventually(func() error {
		cluster := s.world.Load()
		if cluster == nil {
			return errors.New("the drainer has not started")
		}
		pods, err := cluster.Pods(s.node)
		if err == nil && len(pods) != count {
			err = fmt.Errorf("the drainer knows of %d pods, want %d", len(pods), count)
		}
		return err
	})
}
