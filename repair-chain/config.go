package repairchain

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/lease"
)

// Config is the configuration of repair-chain.
type Config struct {
	lease.Cluster

	// LeaseNamespace holds the leases of nodes that remediators share; empty takes
	// none.
	LeaseNamespace string `toml:"leaseNamespace" flag:"lease-namespace" usage:"Namespace of the leases that prevent concurrent remediation of a node by remediators and repair chain runs. Empty uses no leases."`
	// Keep is how long a run that has ended is kept, with the objects of its steps.
	Keep time.Duration `toml:"runRetention" bounds:"at least 0s" flag:"run-retention" usage:"Time that a finished run is kept with its objects. 0s keeps it without a limit."`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{Keep: 30 * 24 * time.Hour, Cluster: lease.DefaultCluster()}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Cluster.Validate()}
	if c.Keep < 0 {
		problems = append(problems, fmt.Errorf("runRetention (--run-retention) is %s: must not be negative", c.Keep))
	}
	return errors.Join(problems...)
}
