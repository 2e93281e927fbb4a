package janitor

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// nodeController is what one controller works with, once what it does not set itself
// was taken from the others.
type nodeController struct {
	// Enabled switches it on.
	Enabled bool
	// Endpoint is its plugin.
	Endpoint provider.Endpoint
	// Policy is what its decisions depend on.
	Policy repair.Policy

	key        string
	exclusions []selectors
}

// selectors are label selectors and the key they stand under.
type selectors struct {
	key  string
	text []string
}

// reboot is the reboot controller.
func (c Config) reboot() nodeController {
	own := c.RebootNode
	return nodeController{
		Enabled: own.Enabled, key: "rebootNodeController",
		Endpoint:   c.endpoint(own.CSPPluginHost, own.CSPPlugin, own.PluginTimeout),
		exclusions: c.exclusions("rebootNodeController", own.Nodes),
		Policy: repair.Policy{
			Timeout: cmp.Or(own.Timeout, c.Global.Timeout), ResendAfter: own.ResendAfter, Poll: own.PollInterval,
			Manual: c.Global.ManualMode || own.ManualMode, TTL: c.Global.TTL,
		},
	}
}

// terminate is the termination controller.
func (c Config) terminate() nodeController {
	own, reboot := c.TerminateNode, c.RebootNode
	return nodeController{
		Enabled: own.Enabled, key: "terminateNodeController",
		Endpoint:   c.endpoint(own.CSPPluginHost, own.CSPPlugin, cmp.Or(own.PluginTimeout, reboot.PluginTimeout)),
		exclusions: c.exclusions("terminateNodeController", own.Nodes),
		Policy: repair.Policy{
			Timeout:     cmp.Or(own.Timeout, c.Global.Timeout),
			ResendAfter: cmp.Or(own.ResendAfter, reboot.ResendAfter), Poll: cmp.Or(own.PollInterval, reboot.PollInterval),
			Manual: c.Global.ManualMode || own.ManualMode, TTL: c.Global.TTL,
		},
	}
}

func (c Config) endpoint(host string, own PluginOverride, timeout time.Duration) provider.Endpoint {
	g := c.Global.CSPPlugin
	e := provider.Endpoint{
		Host: c.Global.CSPPluginHost, CallTimeout: timeout, Plaintext: g.Plaintext,
		CAFile: cmp.Or(own.CAFile, g.CAFile), CertFile: cmp.Or(own.CertFile, g.CertFile), KeyFile: cmp.Or(own.KeyFile, g.KeyFile),
		ServerName: cmp.Or(own.ServerName, g.ServerName), TokenFile: cmp.Or(own.TokenFile, g.TokenFile),
	}
	if host != "" {
		e.Host, e.Plaintext = host, own.Plaintext
	}
	return e
}

func (c Config) exclusions(controller string, own NodesOverride) []selectors {
	return []selectors{{"global.nodes.exclusions", c.Global.Nodes.Exclusions}, {controller + ".nodes.exclusions", own.Exclusions}}
}

// excluded are the nodes that the controller leaves alone; none matches after an
// error.
func (c nodeController) excluded() ([]labels.Selector, error) { return excluded(c.exclusions) }

func excluded(lists []selectors) ([]labels.Selector, error) {
	var out []labels.Selector
	var problems []error
	for _, list := range lists {
		for _, text := range list.text {
			selector, err := labels.Parse(text)
			switch {
			case err != nil:
				problems = append(problems, fmt.Errorf("%s: %w", list.key, err))
			case selector.Empty():
				problems = append(problems, fmt.Errorf("%s: an empty selector would exclude every node", list.key))
			default:
				out = append(out, selector)
			}
		}
	}
	return out, errors.Join(problems...)
}

// validate joins everything that is wrong with the controller.
func (c nodeController) validate(l lease.Config) error {
	var problems []error
	if c.Endpoint.Host == "" {
		problems = append(problems, fmt.Errorf("global.cspPluginHost (--csp-plugin-host) and %s.cspPluginHost are both empty", c.key))
	} else if err := c.Endpoint.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("global.cspPlugin and %s.cspPlugin: %w", c.key, err))
	}
	_, err := c.excluded()
	problems = append(problems, err)
	call := c.Endpoint.CallTimeout
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{c.key + ".timeout or global.timeout", c.Policy.Timeout},
		{c.key + ".resendAfter", c.Policy.ResendAfter},
		{c.key + ".pollInterval", c.Policy.Poll},
		{c.key + ".pluginTimeout", call},
	} {
		if d.value <= 0 {
			problems = append(problems, fmt.Errorf("%s is %s: must be above 0", d.key, d.value))
		}
	}
	if call >= c.Policy.ResendAfter {
		problems = append(problems, fmt.Errorf("%s.pluginTimeout is %s: must be less than resendAfter %s", c.key, call, c.Policy.ResendAfter))
	}
	if term := l.RenewDeadline - l.RetryPeriod; l.Enabled && call > term {
		problems = append(problems, fmt.Errorf("%s.pluginTimeout is %s: must be at most %s, the guaranteed term of a leader", c.key, call, term))
	}
	return errors.Join(problems...)
}
