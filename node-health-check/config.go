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

	// DryRun decides and reports, and begins and removes nothing.
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"If true, evaluates and reports every decision but creates and deletes no remediation."`
	// LeaseNamespace holds the leases of nodes; it has to be that of every other
	// remediator of the cluster.
	LeaseNamespace string `toml:"leaseNamespace" flag:"lease-namespace" usage:"Namespace of the leases that prevent concurrent remediation of a node by different remediators."`
	// Workers is how many objects are created, changed or removed at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of remediations that are created, updated or deleted concurrently."`

	// Bridge reports the nodes of HealthEventRemediations as health events.
	Bridge bool `toml:"bridge" flag:"bridge" usage:"If true, reports the nodes of HealthEventRemediation objects as health events and mirrors the result to the objects."`
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
		problems = append(problems, fmt.Errorf("workers (--workers) is %d: must be at least 1", c.Workers))
	}
	if c.Bridge && c.Socket == "" {
		problems = append(problems, errors.New("platformConnectorSocket (--platform-connector-socket) is empty, but required by --bridge"))
	}
	return errors.Join(problems...)
}
