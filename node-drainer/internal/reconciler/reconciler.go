// Package reconciler carries out the drains of nodes. Handle observes a node, decides
// on the next step, does it, stamps the node's records and rests, each in the file of
// that name; tracker.go has what is remembered in between.
package reconciler

import (
	"log/slog"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Config says how drains are carried out.
type Config struct {
	Policy decision.Policy
	// PerNode and InFlight bound the evictions under way, of one node and of all.
	PerNode, InFlight int
	// PerSecond bounds the evictions of all nodes; 0 leaves it to the API server.
	PerSecond float64
	// DryRun goes through every decision and writes nothing.
	DryRun bool
}

// maxSteps bounds one visit, so that other nodes get their turn.
const maxSteps = 8

// Reconciler is the handler of nodes. Handle may be called for several nodes at
// once, but for one node by one caller at a time.
type Reconciler struct {
	records *consumer.Records
	client  kubernetes.Interface
	cluster *Cluster
	config  Config
	clock   clock.Clock
	log     *slog.Logger
	metrics *Metrics
	events  *eventrecorder.Recorder
	tracker *tracker
	cordons *cordons
	evictor *evictor
}

// Deps are the parts a Reconciler works with.
type Deps struct {
	Records *consumer.Records
	Client  kubernetes.Interface
	Cluster *Cluster
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *Metrics
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
	// Events writes those about Nodes; nil writes none.
	Events *eventrecorder.Recorder
}

// New makes a Reconciler.
func New(c Config, d Deps) *Reconciler {
	out := &Reconciler{
		records: d.Records, client: d.Client, cluster: d.Cluster, config: c,
		clock: d.Clock, log: d.Log, metrics: d.Metrics, events: d.Events, tracker: newTracker(),
		cordons: newCordons(d.Records, d.Clock),
		evictor: &evictor{
			client: d.Client, cluster: d.Cluster, clock: d.Clock, log: d.Log, metrics: d.Metrics, brake: d.Brake,
			grace: c.Policy.Eviction.Grace, perNode: c.PerNode, evictions: newSemaphore(c.InFlight, c.PerSecond),
		},
	}
	d.Metrics.watch(out.tracker.size, out.cordons.size, out.tracker.overdue)
	return out
}
