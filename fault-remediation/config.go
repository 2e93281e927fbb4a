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
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"If true, evaluates and logs every decision but writes nothing to the cluster or the store."`
	// Workers is how many nodes are handled at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of nodes that are processed concurrently."`
	// RecoveryWithin is how long after a healthy repair the fault's recovery is
	// waited for before a person is asked.
	RecoveryWithin time.Duration `toml:"recoveryTimeout" bounds:"above 0s" flag:"recovery-timeout" usage:"Time to wait for the recovery of a fault after a successful remediation. After it, manual intervention is required."`
	// UnrepairedAfter is how long the recovery of a fault that asks for no repair (action
	// NONE) is waited for before a person is asked; 0 asks nobody.
	UnrepairedAfter time.Duration `toml:"noActionRecoveryTimeout" bounds:"at least 0s" flag:"no-action-recovery-timeout" usage:"Time to wait for the recovery of a fault without a remediation (recommended action NONE). After it, manual intervention is required. 0s waits without a limit."`
	// OrphanedAfter is how long a Node's claim must have been seen without its
	// repair object before it is dropped.
	OrphanedAfter time.Duration `toml:"orphanedClaimTimeout" bounds:"above 0s" flag:"orphaned-claim-timeout" usage:"Time for which the claim of a Node must be observed without its maintenance object before the claim is removed."`

	// LeaseNamespace holds the leases of nodes that remediators share; empty takes
	// none.
	LeaseNamespace string `toml:"leaseNamespace" flag:"lease-namespace" usage:"Namespace of the leases that prevent concurrent remediation of a node by different remediators, including NodeHealthCheck. Empty uses no leases."`

	// RepeatOffender decides which machines are repeat offenders.
	RepeatOffender RepeatOffender `toml:"repeatOffender"`

	// Template is where template files are read from.
	Template action.Templates `toml:"template"`
	// RemediationActions are the repairs; without any the defaults hold.
	RemediationActions action.Configs `toml:"remediationActions"`
	// Eviction is the node drainer's policy: which pods have to be gone before
	// an object is created. Give both services the same.
	Eviction eviction.Config `toml:"eviction"`
}

// RepeatOffender is how many repairs make a machine a repeat offender, and what becomes of it.
type RepeatOffender struct {
	// Repairs is the number of remediations within Window, the next one included, that
	// make a machine a repeat offender. 0 disables the mark.
	Repairs int           `toml:"threshold" bounds:"0 or 2 to 10" enforced:"RepeatOffender.validate"`
	Window  time.Duration `toml:"window" bounds:"above 0s, at most 720h"`
	// Keep requires manual intervention instead of that remediation and every later one.
	Keep bool `toml:"requireManualIntervention"`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{Cluster: lease.DefaultCluster(), Workers: 64, RecoveryWithin: decision.DefaultRecoveryWithin, UnrepairedAfter: decision.DefaultUnrepairedAfter, OrphanedAfter: decision.DefaultOrphanedAfter, Eviction: eviction.Default(),
		RepeatOffender: RepeatOffender{Repairs: decision.DefaultRepeatOffenderRepairs, Window: decision.DefaultRepeatOffenderWindow}}
}

// policy is what the decision needs besides the actions.
func (c Config) policy() decision.Policy {
	return decision.Policy{RecoveryWithin: c.RecoveryWithin, UnrepairedAfter: c.UnrepairedAfter, RepeatOffender: decision.RepeatOffenderPolicy(c.RepeatOffender)}
}

// Validate joins everything that is wrong, each with its key.
func (c Config) Validate() error {
	problems := []error{c.Location.Validate(), c.Cluster.Validate()}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("workers (--workers) is %d: must be at least 1", c.Workers))
	}
	if c.RecoveryWithin <= 0 {
		problems = append(problems, fmt.Errorf("recoveryTimeout (--recovery-timeout) is %s: must be above 0", c.RecoveryWithin))
	}
	if c.UnrepairedAfter < 0 {
		problems = append(problems, fmt.Errorf("noActionRecoveryTimeout (--no-action-recovery-timeout) is %s: must not be negative, 0s requests no manual intervention", c.UnrepairedAfter))
	}
	if c.OrphanedAfter <= 0 {
		problems = append(problems, fmt.Errorf("orphanedClaimTimeout (--orphaned-claim-timeout) is %s: must be above 0", c.OrphanedAfter))
	}
	problems = append(problems, c.RepeatOffender.validate())
	if err := c.Eviction.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("eviction: %w", err))
	}
	repairs, err := c.compile()
	return errors.Join(append(problems, err, c.checkExtent(repairs))...)
}

// validate refuses a window from which records may be missing: they are kept for
// record.Retention after they are finished.
func (r RepeatOffender) validate() error {
	switch {
	case r.Repairs == 0 && r.Keep:
		return errors.New("repeatOffender.requireManualIntervention is true and repeatOffender.threshold is 0: set repeatOffender.threshold to 2 or more, or remove repeatOffender.requireManualIntervention")
	case r.Repairs == 0:
		return nil
	case r.Repairs < 2 || r.Repairs > nodemark.MaxCountedRepairs:
		return fmt.Errorf("repeatOffender.threshold is %d: must be 0 (disabled) or 2 to %d", r.Repairs, nodemark.MaxCountedRepairs)
	case r.Window <= 0 || r.Window > record.Retention:
		return fmt.Errorf("repeatOffender.window is %s: must be above 0 and at most %s, the retention of remediation records", r.Window, record.Retention)
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
	return fmt.Errorf("eviction.partialDrainEnabled is true, but remediationActions.%q acts on the complete node (%s) and would terminate the Pods "+
		"that were not drained: map it to an object that resets only the GPU, or set partialDrainEnabled to false here and in node-drainer",
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
