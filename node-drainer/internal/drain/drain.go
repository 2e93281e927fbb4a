// Package drain carries out the drains of nodes. Handle observes a node, asks
// the plan for the next step, does it, stamps the node's records and rests, each
// in the file of that name; memory.go has what is remembered in between.
package drain

import (
	"log/slog"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Config says how drains are carried out.
type Config struct {
	Policy plan.Policy
	// PerNode and InFlight bound the evictions under way, of one node and of all.
	PerNode, InFlight int
	// PerSecond bounds the evictions of all nodes; 0 leaves it to the API server.
	PerSecond float64
	// DryRun goes through every decision and writes nothing.
	DryRun bool
}

// maxSteps bounds one visit, so that other nodes get their turn.
const maxSteps = 8

// Drain is the handler of nodes. Handle may be called for several nodes at
// once, but for one node by one caller at a time.
type Drain struct {
	records *consumer.Records
	client  kubernetes.Interface
	world   *World
	config  Config
	clock   clock.PassiveClock
	log     *slog.Logger
	metrics *Metrics
	memory  *memory
	hand    *hand
}

// Deps are the parts a Drain works with.
type Deps struct {
	Records *consumer.Records
	Client  kubernetes.Interface
	World   *World
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
}

// New makes a Drain.
func New(c Config, d Deps) *Drain {
	out := &Drain{
		records: d.Records, client: d.Client, world: d.World, config: c,
		clock: d.Clock, log: d.Log, metrics: d.Metrics, memory: newMemory(),
		hand: &hand{
			client: d.Client, world: d.World, clock: d.Clock, log: d.Log, metrics: d.Metrics, brake: d.Brake,
			grace: c.Policy.Eviction.Grace, perNode: c.PerNode, gate: newGate(c.InFlight, c.PerSecond),
		},
	}
	d.Metrics.watch(out.memory.size)
	return out
}
