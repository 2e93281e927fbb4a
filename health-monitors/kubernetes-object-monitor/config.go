package kubernetesobjectmonitor

import (
	"errors"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is the configuration of the monitor.
type Config struct {
	lease.Cluster
	report.Connector
	report.Acting

	// Policies is the path of the policy file; it is followed while the monitor runs.
	Policies string `toml:"policyConfigPath" bounds:"not empty" flag:"policy-config-path" usage:"File with the policies. A changed file is loaded without a restart."`
	// Publishers is a connector's configuration file. The check names that it gives to other
	// agents are refused as names of policies; empty takes the connectors' built-in names.
	Publishers string `toml:"publishersConfigPath" live:"true" flag:"publishers-config-path" usage:"Configuration file of the connectors. Check names that its [[publishers.agent]] entries assign to other agents are rejected. Empty uses the built-in entries."`
	// Resync is how long an answer stands at most before it is looked at again.
	Resync time.Duration `toml:"resyncPeriod" bounds:"at least 1s" flag:"resync-period" usage:"Interval after which every watched object is evaluated again."`
	// Workers is how many objects are evaluated at once.
	Workers int `toml:"maxConcurrentReconciles" bounds:"at least 1" flag:"max-concurrent-reconciles" usage:"Maximum number of objects that are evaluated concurrently."`
	// State is the ConfigMap of the open faults, in the lease's namespace.
	State string `toml:"stateConfigMap" bounds:"not empty" flag:"state-config-map" usage:"Name of the ConfigMap that stores the open faults. It is in the namespace of the lease."`

	// MetricsAddress and ProbeAddress both serve metrics and probes.
	MetricsAddress string `toml:"metricsBindAddress" flag:"metrics-bind-address" usage:"Address of the metrics endpoint, as host:port. --metrics-address replaces this flag and --health-probe-bind-address."`
	ProbeAddress   string `toml:"healthProbeBindAddress" flag:"health-probe-bind-address" usage:"Address of the health probe endpoints, as host:port."`
}

// defaultConfig is the configuration without special wishes; numbers and path are
// those of ADR-011.
var defaultConfig = Config{
	Policies:       "/etc/nvsentinel/config/policies.toml",
	Resync:         5 * time.Minute,
	Workers:        10,
	Connector:      report.DefaultConnector(),
	Acting:         report.Acting{Strategy: record.Process},
	State:          "kubernetes-object-monitor-state",
	MetricsAddress: ":8080",
	ProbeAddress:   ":8081",
	Cluster:        lease.DefaultCluster(),
}

// Addresses are where metrics and probes are served.
func (c Config) Addresses() (metrics, probes string) { return c.MetricsAddress, c.ProbeAddress }

// Validate lists everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Cluster.Validate()) }
