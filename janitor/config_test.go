package janitor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

func with(change func(*Config)) Config {
	c := defaultConfig()
	c.Global.CSPPluginHost = "plugin:9090"
	change(&c)
	return c
}

func TestDefaults(t *testing.T) {
	c := with(func(*Config) {})
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	want := repair.Policy{Timeout: 25 * time.Minute, ResendAfter: 10 * time.Minute, Poll: 15 * time.Second, TTL: 336 * time.Hour}
	if diff := cmp.Diff(want, c.reboot().Policy); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if c.reboot().Endpoint.Host != "plugin:9090" {
		t.Errorf("host is %q", c.reboot().Endpoint.Host)
	}
}

func TestControllerOverridesGlobal(t *testing.T) {
	c := with(func(c *Config) {
		c.RebootNode.CSPPluginHost, c.RebootNode.Timeout, c.RebootNode.ManualMode = "own:1", time.Hour, true
	})
	if p := c.reboot().Policy; c.reboot().Endpoint.Host != "own:1" || p.Timeout != time.Hour || !p.Manual {
		t.Errorf("host %q, policy %+v", c.reboot().Endpoint.Host, p)
	}
}

// What the termination controller does not set it takes from the others.
func TestTerminationTakesFromTheOthers(t *testing.T) {
	c := with(func(c *Config) {
		c.RebootNode.ResendAfter, c.RebootNode.PluginTimeout, c.RebootNode.CSPPluginHost = time.Hour, time.Second, "own:1"
		c.TerminateNode.PollInterval, c.TerminateNode.ManualMode = time.Minute, true
	})
	want := repair.Policy{Timeout: 25 * time.Minute, ResendAfter: time.Hour, Poll: time.Minute, Manual: true, TTL: 336 * time.Hour}
	if diff := cmp.Diff(want, c.terminate().Policy); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if e := c.terminate().Endpoint; e.Host != "plugin:9090" || e.CallTimeout != time.Second {
		t.Errorf("endpoint %+v", e)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"no plugin", func(c *Config) { c.Global.CSPPluginHost = "" }, []string{"global.cspPluginHost"}},
		{"no plugin, not enabled", func(c *Config) {
			c.Global.CSPPluginHost, c.RebootNode.Enabled, c.TerminateNode.Enabled = "", false, false
		}, nil},
		{"a plugin for reboots alone", func(c *Config) { c.Global.CSPPluginHost, c.RebootNode.CSPPluginHost = "", "own:1" }, []string{"terminateNodeController.cspPluginHost"}},
		{"a termination that is never resent", func(c *Config) { c.TerminateNode.ResendAfter = -1 }, []string{"terminateNodeController.resendAfter"}},
		{"all at once", func(c *Config) {
			c.Global.Timeout, c.RebootNode.ResendAfter, c.RebootNode.PollInterval, c.RebootNode.Workers = 0, -1, 0, 0
		}, []string{"timeout", "resendAfter", "pollInterval", "workers"}},
		{"a call as long as the wait for its effect", func(c *Config) { c.RebootNode.PluginTimeout = 10 * time.Minute }, []string{"pluginTimeout is 10m0s: must be less"}},
		{"a call as long as a leader's term", func(c *Config) { c.Lease.Enabled, c.RebootNode.PluginTimeout = true, time.Minute }, []string{"pluginTimeout is 1m0s: must be at most"}},
		{"a call as long as nobody's term", func(c *Config) { c.RebootNode.PluginTimeout = time.Minute }, nil},
		{"a lease for ever", func(c *Config) { c.Lease.Enabled, c.Lease.RenewDeadline = true, time.Hour }, []string{"leaderElection.leaseDuration"}},
		{"a broken exclusion", func(c *Config) { c.Global.Nodes.Exclusions = []string{"a in"} }, []string{"global.nodes.exclusions"}},
		{"an exclusion of everything", func(c *Config) { c.RebootNode.Nodes.Exclusions = []string{""} }, []string{"rebootNodeController.nodes.exclusions", "every node"}},
		{"a negative time to live", func(c *Config) { c.Global.TTL = -1 }, []string{"global.ttl"}},
		{"a token in clear text", func(c *Config) {
			c.Global.CSPPlugin.Plaintext, c.Global.CSPPlugin.TokenFile = true, "t"
		}, []string{"global.cspPlugin", "plain text"}},
		{"a negative limit of requests", func(c *Config) { c.Kube.QPS = -1 }, []string{"kube-api-qps"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := with(tt.change).Validate()
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("validating: %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not mention %q", err, part)
				}
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	c := with(func(c *Config) {
		c.Global.CSPPlugin = Plugin{CAFile: "g-ca", TokenFile: "g-token", Plaintext: true}
		c.RebootNode.CSPPlugin.CAFile = "own-ca"
	})
	want := provider.Endpoint{Host: "plugin:9090", CallTimeout: 30 * time.Second, CAFile: "own-ca", TokenFile: "g-token", Plaintext: true}
	if diff := cmp.Diff(want, c.reboot().Endpoint); diff != "" {
		t.Errorf("global host (-want +got):\n%s", diff)
	}
	c.RebootNode.CSPPluginHost = "own:1"
	want.Host, want.Plaintext = "own:1", false
	if diff := cmp.Diff(want, c.reboot().Endpoint); diff != "" {
		t.Errorf("own host (-want +got):\n%s", diff)
	}
}

func TestExclusions(t *testing.T) {
	c := with(func(c *Config) {
		c.Global.Nodes.Exclusions = []string{"pool in (control, edge)"}
		c.RebootNode.Nodes.Exclusions = []string{"keep"}
	})
	got, err := c.reboot().excluded()
	if err != nil || len(got) != 2 || !got[0].Matches(labels.Set{"pool": "edge"}) || got[0].Matches(labels.Set{"pool": "gpu"}) || !got[1].Matches(labels.Set{"keep": ""}) {
		t.Errorf("exclusions: %v, %v", got, err)
	}
}
