package nodehealthcheck

import (
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is the configuration of node-health-check.
type Config struct {
	lease.Cluster
	// Connector is for the bridge.
	report.Connector

	// DryRun decides and tells, and begins and removes nothing.
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"decide and tell, but begin and remove no remediation"`
	// LeaseNamespace holds the leases of nodes; it has to be that of every other
	// remediator of the cluster.
	LeaseNamespace string `toml:"leaseNamespace" flag:"lease-namespace" usage:"namespace of the leases by which remediators keep off each other's nodes"`
	// Workers is how many objects are created, changed or removed at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"remediations that are created, changed or removed at once"`

	// Bridge reports the nodes of HealthEventRemediations as health events.
	Bridge bool `toml:"bridge" flag:"bridge" usage:"report the nodes of HealthEventRemediations as health events and mirror what comes of them"`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{
		DryRun: true, LeaseNamespace: nodelease.DefaultNamespace, Workers: 64,
		Connector: report.DefaultConnector(), Cluster: lease.DefaultCluster(),
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Cluster.Validate()}
	if c.LeaseNamespace == "" {
		problems = append(problems, errors.New("leaseNamespace (--lease-namespace) is empty"))
	}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("workers (--workers) is %d; it must be at least 1", c.Workers))
	}
	if c.Bridge && c.Socket == "" {
		problems = append(problems, errors.New("platformConnectorSocket (--platform-connector-socket) is empty, and --bridge reports through it"))
	}
	return errors.Join(problems...)
}
