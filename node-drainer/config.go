package nodedrainer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is the configuration of the node drainer. The eviction policy stands
// at the top of the file, under the predecessor's keys.
type Config struct {
	eviction.Config
	storeopen.Location
	lease.Cluster

	// DryRun goes through every decision and writes nothing.
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"If true, evaluates and logs every decision but writes nothing to the cluster or the store."`
	// Workers is how many nodes are looked at at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of nodes that are processed concurrently."`
	// EvictionsPerNode and EvictionsInFlight bound the evictions under way.
	EvictionsPerNode  int `toml:"evictionsPerNode" bounds:"at least 1" flag:"evictions-per-node" usage:"Maximum number of concurrent evictions per node."`
	EvictionsInFlight int `toml:"evictionsInFlight" bounds:"at least 1" flag:"evictions-in-flight" usage:"Maximum number of concurrent evictions across all nodes."`
	// EvictionsPerSecond is a ceiling for all nodes together; 0 is none, so that
	// the API server's priority and fairness is the limit.
	EvictionsPerSecond float64 `toml:"evictionsPerSecond" bounds:"at least 0" flag:"evictions-per-second" usage:"Maximum number of evictions per second across all nodes. 0 leaves only the limit of the API server."`
	// OverdueAfterMinutes is how long after its fault a drain may wait for pods that may
	// complete before that is reported: Event DrainBlocked, nvsentinel_node_drainer_overdue_drains
	// and its alert. The pods are left to complete all the same.
	OverdueAfterMinutes int `toml:"overdueAfterMinutes" bounds:"at least 1 min" flag:"overdue-after-minutes" usage:"Minutes after the fault for which a drain may wait for the completion of Pods before it is reported as overdue."`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{
		Config: eviction.Default(), Cluster: lease.DefaultCluster(), Workers: 64, EvictionsPerNode: 16, EvictionsInFlight: 128,
		OverdueAfterMinutes: int(decision.DefaultOverdue / time.Minute),
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Location.Validate(), c.Cluster.Validate(), c.Config.Validate()}
	for _, bound := range []struct {
		key   string
		value int
	}{
		{"workers (--workers)", c.Workers},
		{"evictionsPerNode (--evictions-per-node)", c.EvictionsPerNode},
		{"evictionsInFlight (--evictions-in-flight)", c.EvictionsInFlight},
		{"overdueAfterMinutes (--overdue-after-minutes)", c.OverdueAfterMinutes},
	} {
		if bound.value < 1 {
			problems = append(problems, fmt.Errorf("%s is %d: must be at least 1", bound.key, bound.value))
		}
	}
	if r := c.EvictionsPerSecond; r < 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		problems = append(problems, fmt.Errorf("evictionsPerSecond (--evictions-per-second) is %v: must be a number of at least 0", r))
	}
	return errors.Join(problems...)
}
