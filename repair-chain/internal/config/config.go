// Package config holds what an operator can set about repair-chain.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
)

// Config is the configuration of repair-chain.
type Config struct {
	// Keep is how long a run that has ended is kept, with the objects of its steps.
	Keep time.Duration `toml:"keepRuns" flag:"keep-runs" usage:"how long a run that has ended is kept with its objects; 0s is for ever"`

	Kube  kube.Config  `toml:"kube"`
	Lease lease.Config `toml:"leaderElection"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Keep: 30 * 24 * time.Hour, Lease: lease.Default()}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate(), c.Lease.Validate()}
	if c.Keep < 0 {
		problems = append(problems, fmt.Errorf("keepRuns (--keep-runs) is %s; it must not be negative", c.Keep))
	}
	return errors.Join(problems...)
}
