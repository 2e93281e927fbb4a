package faultremediation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is the configuration of fault remediation.
type Config struct {
	storeopen.Location
	lease.Cluster

	// DryRun goes through every decision and writes nothing.
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"decide and log, but write nothing to the cluster or the store"`
	// Workers is how many nodes are handled at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"nodes that are handled at once"`
	// RecoveryWithin is how long after a healthy repair the fault's recovery is
	// waited for before a person is asked.
	RecoveryWithin time.Duration `toml:"recoveryWithin" bounds:"above 0s" flag:"recovery-within" usage:"how long a recovery is waited for after a healthy repair before a person is asked"`
	// UnrepairedAfter is how long the recovery of a fault that asks for no repair (action
	// NONE) is waited for before a person is asked; 0 asks nobody.
	UnrepairedAfter time.Duration `toml:"unrepairedAfter" bounds:"at least 0s" flag:"unrepaired-after" usage:"how long the recovery of a fault that asks for no repair (action NONE) is waited for before a person is asked; 0s asks nobody"`
	// OrphanedAfter is how long a Node's claim must have been seen without its
	// repair object before it is dropped.
	OrphanedAfter time.Duration `toml:"orphanedAfter" bounds:"above 0s" flag:"orphaned-after" usage:"how long a Node's claim must have been seen without its repair object before it is dropped"`

	// LeaseNamespace holds the leases of nodes that remediators share; empty takes
	// none.
	LeaseNamespace string `toml:"leaseNamespace" flag:"lease-namespace" usage:"namespace of the leases by which remediators, NodeHealthChecks among them, keep off each other's nodes; empty takes none"`

	// Lemon says which machines are lemons.
	Lemon Lemon `toml:"lemon"`

	// Template says where template files are read from.
	Template action.Templates `toml:"template"`
	// RemediationActions are the repairs; without any the defaults hold.
	RemediationActions action.Configs `toml:"remediationActions"`
	// Eviction is the node drainer's policy: which pods have to be gone before
	// an object is created. Give both services the same.
	Eviction eviction.Config `toml:"eviction"`
}

// Lemon is how many repairs make a lemon of a machine, and what becomes of it.
type Lemon struct {
	// Repairs within Window, the one that is about to begin included; 0 marks none.
	Repairs int           `toml:"repairs" bounds:"0 or 2 to 10" enforced:"Lemon.validate"`
	Window  time.Duration `toml:"window" bounds:"above 0s, at most 720h"`
	// Keep leaves that repair, and every later one, to a person.
	Keep bool `toml:"keep"`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{Cluster: lease.DefaultCluster(), Workers: 64, RecoveryWithin: decision.DefaultRecoveryWithin, UnrepairedAfter: decision.DefaultUnrepairedAfter, OrphanedAfter: decision.DefaultOrphanedAfter, Eviction: eviction.Default(),
		Lemon: Lemon{Repairs: decision.DefaultLemonRepairs, Window: decision.DefaultLemonWindow}}
}

// policy is what the decision needs besides the actions.
func (c Config) policy() decision.Policy {
	return decision.Policy{RecoveryWithin: c.RecoveryWithin, UnrepairedAfter: c.UnrepairedAfter, Lemon: decision.LemonPolicy(c.Lemon)}
}

// Validate joins everything that is wrong, each with its key.
func (c Config) Validate() error {
	problems := []error{c.Location.Validate(), c.Cluster.Validate()}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("workers (--workers) %d is less than 1", c.Workers))
	}
	if c.RecoveryWithin <= 0 {
		problems = append(problems, fmt.Errorf("recoveryWithin (--recovery-within) %s is not above 0", c.RecoveryWithin))
	}
	if c.UnrepairedAfter < 0 {
		problems = append(problems, fmt.Errorf("unrepairedAfter (--unrepaired-after) %s is negative; 0s asks nobody", c.UnrepairedAfter))
	}
	if c.OrphanedAfter <= 0 {
		problems = append(problems, fmt.Errorf("orphanedAfter (--orphaned-after) %s is not above 0", c.OrphanedAfter))
	}
	problems = append(problems, c.Lemon.validate())
	if err := c.Eviction.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("eviction: %w", err))
	}
	repairs, err := c.compile()
	return errors.Join(append(problems, err, c.checkExtent(repairs))...)
}

// validate refuses a window from which records may be missing: they are kept for
// record.Retention after they are finished.
func (l Lemon) validate() error {
	switch {
	case l.Repairs == 0 && l.Keep:
		return errors.New("lemon.keep is true and lemon.repairs 0, which marks no lemon; say how many repairs make one, or leave keep out")
	case l.Repairs == 0:
		return nil
	case l.Repairs < 2 || l.Repairs > nodemark.MaxLemonRepairs:
		return fmt.Errorf("lemon.repairs is %d; it must be 0, which marks none, or 2 to %d", l.Repairs, nodemark.MaxLemonRepairs)
	case l.Window <= 0 || l.Window > record.Retention:
		return fmt.Errorf("lemon.window is %s; it must be above 0 and at most %s, for which the store keeps a repair's record", l.Window, record.Retention)
	}
	return nil
}

// checkExtent refuses a drain of one GPU's pods before a repair of the whole
// node, which would end the pods that were left running.
func (c Config) checkExtent(repairs action.Policy) error {
	why, certainly := repairs.ActsOnNode(record.ActionComponentReset)
	if !c.Eviction.PartialDrainEnabled || !certainly {
		return nil
	}
	return fmt.Errorf("eviction.partialDrainEnabled is true, but remediationActions.%q acts on the whole node (%s) and would end the pods "+
		"that were not drained: map it to an object that resets the GPU alone, or leave partialDrainEnabled false here and in node-drainer",
		record.ActionComponentReset, why)
}

// compile reads the templates and compiles the repairs.
func (c Config) compile() (action.Policy, error) {
	actions := c.RemediationActions
	if len(actions) == 0 {
		actions = action.Default()
	}
	return action.Compile(actions, c.Template, func(name string) ([]byte, error) {
		if c.Template.MountPath == "" {
			return nil, errors.New("template.mountPath is empty")
		}
		return os.ReadFile(filepath.Join(c.Template.MountPath, filepath.Base(name)))
	})
}
