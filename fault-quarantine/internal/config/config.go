// Package config is what an operator can set of fault-quarantine.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Config of fault-quarantine. The rule sets' keys are those of existing
// configuration files.
type Config struct {
	// LabelPrefix is put before cordon-by, cordon-reason and their like.
	LabelPrefix string `toml:"label-prefix"`
	// Breaker is accepted from existing files; see Warnings.
	Breaker Breaker `toml:"circuitBreaker"`
	// RuleSets decide which faults quarantine a node.
	RuleSets []ruling.Set `toml:"rule-sets"`
	// DryRun judges every event and quarantines no node.
	DryRun bool `toml:"dry-run" flag:"dry-run" usage:"judge every event and quarantine no node; clearing and releasing go on"`
	// Retention is how long a finished record is kept.
	Retention time.Duration `toml:"retention" flag:"retention" usage:"how long a finished record is kept"`
	// Workers is how many nodes are handled at once.
	Workers int `toml:"workers" flag:"workers" usage:"nodes handled at once"`
	// Store is the DSN of the records.
	Store string `toml:"store" flag:"store" usage:"records: sqlite:///path or postgres://..."`
	// SingleHost permits the embedded store.
	SingleHost bool         `toml:"single-host" flag:"single-host" usage:"all services run on this host, so that the embedded sqlite store may be used"`
	Kube       kube.Config  `toml:"kube"`
	Lease      lease.Config `toml:"leaderElection"`
}

// Breaker is the circuit breaker of existing files.
type Breaker struct {
	Percentage int           `toml:"percentage"`
	Duration   time.Duration `toml:"duration"`
}

// Default is safe: it judges and changes nothing.
func Default() Config {
	return Config{
		LabelPrefix: nodemark.DefaultLabelPrefix, RuleSets: ruling.Default(), DryRun: true, Lease: lease.Default(),
		Retention: 30 * 24 * time.Hour, Workers: 16,
	}
}

// Validate checks everything but the rule expressions, which are compiled at start.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate(), c.Lease.Validate(), ruling.Validate(c.RuleSets)}
	if c.Store == "" {
		problems = append(problems, errors.New("store is not set: give sqlite:///path (with single-host) or postgres://host/database"))
	}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("workers is %d; it must be at least 1", c.Workers))
	}
	if c.Retention < time.Hour {
		problems = append(problems, fmt.Errorf("retention is %s; it must be at least 1h", c.Retention))
	}
	if p := c.Breaker.Percentage; p < 0 || p > 100 {
		problems = append(problems, fmt.Errorf("circuitBreaker.percentage is %d; it must be 0 to 100", p))
	}
	return errors.Join(problems...)
}

// Warnings are settings that are accepted and have no effect.
func (c Config) Warnings() []string {
	if c.Breaker != (Breaker{}) {
		return []string{"circuitBreaker is accepted from existing files but not enforced: this version has no quarantine budget"}
	}
	return nil
}
