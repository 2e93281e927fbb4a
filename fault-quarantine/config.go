package faultquarantine

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is what an operator can set of fault-quarantine. The keys of rule sets and
// circuit breaker are those of existing configuration files.
type Config struct {
	storeopen.Location
	lease.Cluster

	// LabelPrefix is put before cordon-by, cordon-reason and their like.
	LabelPrefix string `toml:"labelPrefix"`
	// Breaker is the quarantine budget of the whole cluster.
	Breaker Breaker `toml:"circuitBreaker" live:"true"`
	// Budgets are further limits, each over the cluster or per value of a label.
	Budgets []budget.Limit `toml:"budgets" live:"true"`
	// DefaultBudgets bounds the sessions open at once, as long as Budgets has no
	// limits of the operator's own.
	DefaultBudgets bool `toml:"defaultBudgets" live:"true" flag:"default-budgets" usage:"If true, limits the nodes in quarantine to 20 % of the GPU nodes and 64 nodes per zone. It has no effect if the configuration file has budgets."`
	// GPUNodeLabel chooses the nodes that percentages are taken of.
	GPUNodeLabel string `toml:"gpuNodeLabel" live:"true" flag:"gpu-node-label" usage:"Label selector of the nodes from which budget percentages are calculated."`
	// RuleSets decide which faults quarantine a node; the built-in ones if the
	// file has none.
	RuleSets []rulematch.Set `toml:"ruleSets" live:"true"`
	// DryRun evaluates every event and quarantines no node.
	DryRun bool `toml:"dryRun" flag:"dry-run" usage:"If true, evaluates every event but quarantines no node. Clearing and releasing nodes continue."`
	// AnyoneReleases has every uncordon and every removed taint release the node, also by a
	// service account and while a repair is active.
	AnyoneReleases bool `toml:"releaseOnAnyUncordon" flag:"release-on-any-uncordon" usage:"If true, every uncordon of a node in quarantine, and every removal of a taint of its quarantine session, releases the node, even by a service account or while a remediation is active. If false, only a change by a user releases it."`
	// Retention is how long a finished record is kept.
	Retention time.Duration `toml:"retention" bounds:"at least 1h" flag:"retention" usage:"Time that a finished record is kept."`
	// Workers is how many nodes are handled at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of nodes that are processed concurrently."`
}

// Breaker bounds how many nodes may go into quarantine within a rolling window.
type Breaker struct {
	// Enabled switches this limit, not those of Budgets.
	Enabled bool `toml:"enabled" flag:"circuit-breaker-enabled" usage:"If true, applies the limit of circuitBreaker to nodes that enter quarantine."`
	// Percentage of the GPU nodes, rounded up.
	Percentage *int `toml:"percentage" bounds:"0 to 100"`
	// Nodes is a number of nodes; without it only the percentage counts.
	Nodes *int `toml:"nodes" bounds:"at least 0"`
	// Duration is the window; 0 counts every node in quarantine.
	Duration time.Duration `toml:"duration" bounds:"at least 0s"`
	// Label makes a budget of its own for each value of this Node label.
	Label string `toml:"label"`
	// ResetAt makes quarantines that began before it count no more.
	ResetAt time.Time `toml:"resetAt"`
}

func (b Breaker) limit() budget.Limit {
	return budget.Limit{
		Name: quota.Breaker, Percentage: b.Percentage, Nodes: b.Nodes, Duration: b.Duration, Label: b.Label, ResetAt: b.ResetAt,
	}
}

// defaultPercentage and defaultWindow are those of existing installations.
const (
	defaultPercentage = 50
	defaultWindow     = 5 * time.Minute
	// defaultAtOnce percent of the GPU nodes, and defaultOfZone nodes of one zone,
	// may be in quarantine at once.
	defaultAtOnce = 20
	defaultOfZone = 64
)

// defaultConfig is safe: it evaluates and changes nothing.
func defaultConfig() Config {
	return Config{
		LabelPrefix: nodemark.DefaultLabelPrefix, DryRun: true, Cluster: lease.DefaultCluster(),
		Breaker:      Breaker{Enabled: true, Percentage: new(defaultPercentage), Duration: defaultWindow},
		GPUNodeLabel: "nvidia.com/gpu.present=true", DefaultBudgets: true,
		Retention: 30 * 24 * time.Hour, Workers: 128,
	}
}

// rules are the active rule sets. The built-in ones are no defaults under the
// file's, which would show through where a set of the file leaves a key out.
func (c Config) rules() []rulematch.Set {
	if c.RuleSets == nil {
		return rulematch.Default()
	}
	return c.RuleSets
}

// Warnings returns which rules of the operator act on text that programs can choose.
func (c Config) Warnings() []string { return rulematch.Warnings(c.RuleSets) }

// quota are the active quarantine budgets; the configuration is valid.
func (c Config) quota() quota.Rules {
	var limits []budget.Limit
	if c.Breaker.Enabled {
		limits = append(limits, c.Breaker.limit())
	}
	counted, err := labels.Parse(c.GPUNodeLabel)
	if err != nil {
		counted = labels.Nothing()
	}
	return quota.Rules{Limits: append(limits, c.budgets()...), Counted: counted}
}

// budgets are the operator's, or the built-in ones: the circuit breaker bounds a
// rate, and no rate keeps a fleet from going into quarantine node by node.
func (c Config) budgets() []budget.Limit {
	if len(c.Budgets) > 0 || !c.DefaultBudgets {
		return c.Budgets
	}
	return []budget.Limit{
		{Name: "at-once", Percentage: new(defaultAtOnce)},
		{Name: "zone", Label: corev1.LabelTopologyZone, Nodes: new(defaultOfZone)},
	}
}

// Validate checks everything.
func (c Config) Validate() error {
	problems := []error{c.Location.Validate(), c.Cluster.Validate(), c.validateQuota()}
	if _, err := rulematch.Compile(c.rules()); err != nil {
		problems = append(problems, err)
	}
	for _, why := range validation.IsQualifiedName(c.LabelPrefix + "cordon-timestamp") {
		problems = append(problems, fmt.Errorf("labelPrefix %q does not form a valid label key: %s", c.LabelPrefix, why))
	}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("workers is %d: must be at least 1", c.Workers))
	}
	if c.Retention < time.Hour {
		problems = append(problems, fmt.Errorf("retention is %s: must be at least 1h", c.Retention))
	}
	return errors.Join(problems...)
}

func (c Config) validateQuota() error {
	var problems []error
	if c.Breaker.Enabled {
		problems = append(problems, c.Breaker.limit().Validate("circuitBreaker"))
	}
	names := map[string]bool{quota.Breaker: true}
	for i, l := range c.Budgets {
		at := fmt.Sprintf("budgets[%d]", i)
		problems = append(problems, l.Validate(at))
		if names[l.Name] {
			problems = append(problems, fmt.Errorf("%s.name %q is a duplicate or the name of the circuit breaker", at, l.Name))
		}
		names[l.Name] = true
	}
	if _, err := labels.Parse(c.GPUNodeLabel); err != nil {
		problems = append(problems, fmt.Errorf("gpuNodeLabel (--gpu-node-label) %q: %w", c.GPUNodeLabel, err))
	}
	return errors.Join(problems...)
}
