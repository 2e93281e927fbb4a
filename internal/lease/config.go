package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// Cluster is the part of a service's configuration that says how it reaches the API
// server and which of its replicas acts; it is embedded.
type Cluster struct {
	Kube  kube.Config `toml:"kube"`
	Lease Config      `toml:"leaderElection"`
}

// DefaultCluster is the pod's own account, without an election.
func DefaultCluster() Cluster { return Cluster{Lease: Default()} }

// Validate joins everything that is wrong.
func (c Cluster) Validate() error { return errors.Join(c.Kube.Validate(), c.Lease.Validate()) }

// Config of the election; Lead holds it.
type Config struct {
	_ struct{} `block:"Leader election" usage:"Which of several replicas acts: the one that holds a Lease"`

	// Enabled elects a leader among the replicas; without it this process acts at once.
	Enabled bool `toml:"enabled" flag:"leader-elect" usage:"act only while holding a lease, so that several replicas can run"`
	// Namespace holds the Lease object.
	Namespace string `toml:"namespace" flag:"leader-elect-namespace" usage:"namespace of the lease"`
	// Duration is how long a lease lives without renewal.
	Duration time.Duration `toml:"leaseDuration" bounds:"above renewDeadline" flag:"leader-elect-lease-duration" usage:"how long a lease lives without renewal"`
	// RenewDeadline is when a leader that cannot renew stops acting.
	RenewDeadline time.Duration `toml:"renewDeadline" bounds:"above 2 retryPeriod" flag:"leader-elect-renew-deadline" usage:"when a leader that cannot renew its lease stops"`
	// RetryPeriod is between two attempts.
	RetryPeriod time.Duration `toml:"retryPeriod" bounds:"above 0s" flag:"leader-elect-retry-period" usage:"time between two attempts to take or renew the lease"`
}

// Default is off, with the durations that Kubernetes' own controllers use.
func Default() Config {
	return Config{Namespace: "nvsentinel", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate checks that a leader stops before its lease can be another's.
func (c Config) Validate() error {
	if !c.Enabled {
		return nil
	}
	var problems []error
	if c.Namespace == "" {
		problems = append(problems, errors.New("leaderElection.namespace is empty"))
	}
	if c.RenewDeadline <= 0 || c.Duration <= c.RenewDeadline {
		problems = append(problems, fmt.Errorf("leaderElection.leaseDuration %s must be longer than renewDeadline %s", c.Duration, c.RenewDeadline))
	}
	if c.RetryPeriod <= 0 || c.RenewDeadline <= 2*c.RetryPeriod {
		problems = append(problems, fmt.Errorf("leaderElection.renewDeadline %s must be longer than two retryPeriods %s", c.RenewDeadline, c.RetryPeriod))
	}
	return errors.Join(problems...)
}
