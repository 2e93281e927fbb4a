// Package config holds what an operator can set about the janitor.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/janitor/reboot"
)

// Config is the configuration of the janitor.
type Config struct {
	// Global holds what every controller uses that does not set its own.
	Global Global `toml:"global"`
	// RebootNode configures the controller of RebootNode objects.
	RebootNode RebootNode `toml:"rebootNodeController"`

	Kube  kube.Config  `toml:"kube"`
	Lease lease.Config `toml:"leaderElection"`
}

// Global holds the defaults of all controllers.
type Global struct {
	// CSPPluginHost is the host:port of the provider plugin.
	CSPPluginHost string `toml:"cspPluginHost" flag:"csp-plugin-host" usage:"host:port of the provider plugin of every controller that names none of its own"`
	// Timeout from the signal to success.
	Timeout time.Duration `toml:"timeout"`
	// ManualMode leaves the signals to people.
	ManualMode bool `toml:"manualMode"`
}

// RebootNode configures the reboot controller.
type RebootNode struct {
	// Enabled switches the controller on.
	Enabled bool `toml:"enabled"`
	// CSPPluginHost overrides Global.CSPPluginHost.
	CSPPluginHost string `toml:"cspPluginHost"`
	// Timeout overrides Global.Timeout; 0 keeps it.
	Timeout time.Duration `toml:"timeout" flag:"reboot-timeout" usage:"time from the signal until the node must be back; 0 means global.timeout"`
	// ManualMode leaves the signal to a person, for this controller.
	ManualMode bool `toml:"manualMode"`
	// ResendAfter is how long a signal without an answer gets to show itself.
	ResendAfter time.Duration `toml:"resendAfter" flag:"resend-after" usage:"time after which a signal that got no answer is sent again with the same key"`
	// PluginTimeout bounds one call of the plugin.
	PluginTimeout time.Duration `toml:"pluginTimeout" flag:"plugin-timeout" usage:"time limit of one call of the plugin"`
	// PollInterval is how often a node is looked at when nothing rings.
	PollInterval time.Duration `toml:"pollInterval" flag:"poll-interval" usage:"how often a node under repair is looked at when no watch rings"`
	// Workers is how many objects are worked on at once.
	Workers int `toml:"workers" flag:"workers" usage:"repairs that are worked on at once"`
}

// Default is the configuration without a file; it lacks the plugin's address.
func Default() Config {
	return Config{
		Global: Global{Timeout: 25 * time.Minute},
		RebootNode: RebootNode{
			Enabled: true, ResendAfter: 10 * time.Minute, PluginTimeout: 30 * time.Second, PollInterval: 15 * time.Second, Workers: 16,
		},
		Lease: leases(),
	}
}

// leases live long enough for a call of the plugin: it has to be over when a
// leader that cannot renew its lease stops.
func leases() lease.Config {
	c := lease.Default()
	c.Duration, c.RenewDeadline, c.RetryPeriod = 90*time.Second, 60*time.Second, 5*time.Second
	return c
}

// Host is the plugin of the reboot controller.
func (c Config) Host() string {
	if c.RebootNode.CSPPluginHost != "" {
		return c.RebootNode.CSPPluginHost
	}
	return c.Global.CSPPluginHost
}

// Policy is the reboot controller's.
func (c Config) Policy() reboot.Policy {
	p := reboot.Policy{
		Timeout: c.Global.Timeout, ResendAfter: c.RebootNode.ResendAfter, Poll: c.RebootNode.PollInterval,
		Manual: c.Global.ManualMode || c.RebootNode.ManualMode,
	}
	if c.RebootNode.Timeout != 0 {
		p.Timeout = c.RebootNode.Timeout
	}
	return p
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate(), c.Lease.Validate()}
	if !c.RebootNode.Enabled {
		return errors.Join(problems...)
	}
	if c.Host() == "" {
		problems = append(problems, errors.New("global.cspPluginHost (--csp-plugin-host) and rebootNodeController.cspPluginHost are both empty"))
	}
	p := c.Policy()
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"rebootNodeController.timeout or global.timeout", p.Timeout},
		{"rebootNodeController.resendAfter", p.ResendAfter},
		{"rebootNodeController.pollInterval", p.Poll},
		{"rebootNodeController.pluginTimeout", c.RebootNode.PluginTimeout},
	} {
		if d.value <= 0 {
			problems = append(problems, fmt.Errorf("%s is %s; it must be more than nothing", d.key, d.value))
		}
	}
	if c.RebootNode.PluginTimeout >= p.ResendAfter {
		problems = append(problems, fmt.Errorf("rebootNodeController.pluginTimeout %s is not less than resendAfter %s", c.RebootNode.PluginTimeout, p.ResendAfter))
	}
	if term := c.Lease.RenewDeadline - c.Lease.RetryPeriod; c.Lease.Enabled && c.RebootNode.PluginTimeout > term {
		problems = append(problems, fmt.Errorf("rebootNodeController.pluginTimeout %s is longer than the %s that a leader has for sure", c.RebootNode.PluginTimeout, term))
	}
	if c.RebootNode.Workers < 1 {
		problems = append(problems, fmt.Errorf("rebootNodeController.workers is %d; it must be at least 1", c.RebootNode.Workers))
	}
	return errors.Join(problems...)
}
