package janitor

import (
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/internal/lease"
)

// Config is the configuration of the janitor.
type Config struct {
	lease.Cluster

	// Global holds what every controller uses that does not set its own.
	Global Global `toml:"global"`
	// RebootNode configures the controller of RebootNode objects.
	RebootNode RebootNode `toml:"rebootNodeController"`
	// TerminateNode configures the controller of TerminateNode objects.
	TerminateNode TerminateNode `toml:"terminateNodeController"`
	// GPUReset configures the controller of GPUReset objects.
	GPUReset GPUReset `toml:"gpuResetController"`
}

// Global holds the defaults of all controllers.
type Global struct {
	// CSPPluginHost is the host:port of the provider plugin.
	CSPPluginHost string `toml:"cspPluginHost" flag:"csp-plugin-host" usage:"Address of the provider plugin, as host:port or unix:///path, for every controller without a plugin of its own."`
	// CSPPlugin describes how the plugin is called.
	CSPPlugin Plugin `toml:"cspPlugin"`
	// Nodes are those that are left alone.
	Nodes Nodes `toml:"nodes"`
	// Timeout from the signal to success.
	Timeout time.Duration `toml:"timeout"`
	// ManualMode leaves the signals to people.
	ManualMode bool `toml:"manualMode"`
	// TTL is how long an object is kept after its end.
	TTL time.Duration `toml:"ttl" bounds:"at least 0s" flag:"ttl" usage:"Time that a maintenance object is kept after it has ended. 0 keeps it without a limit."`
}

// Plugin describes how a plugin is called.
type Plugin struct {
	// CAFile holds the authorities of the plugin's certificate.
	CAFile string `toml:"caFile" flag:"csp-plugin-ca-file" usage:"PEM file with the CA certificates that verify the plugin, read again for every connection. Empty uses the CA certificates of the system."`
	// CertFile and KeyFile are the janitor's certificate.
	CertFile string `toml:"certFile" flag:"csp-plugin-cert-file" usage:"PEM file with the client certificate of the janitor, read again for every connection. Empty sends none."`
	KeyFile  string `toml:"keyFile" flag:"csp-plugin-key-file" usage:"PEM file with the private key of the client certificate."`
	// ServerName is the name in the plugin's certificate.
	ServerName string `toml:"serverName" flag:"csp-plugin-server-name" usage:"Server name in the certificate of the plugin. Empty uses the host of the address."`
	// TokenFile holds the projected service-account token.
	TokenFile string `toml:"tokenFile" flag:"csp-plugin-token-file" usage:"File with the service account token sent with every call, read again each time. Empty sends the token of the Pod to a Unix socket or loopback address, and no token over a network. The value none sends no token."`
	// Plaintext gives up TLS over a network.
	Plaintext bool `toml:"plaintext" flag:"csp-plugin-plaintext" usage:"If true, calls the plugin over a network without TLS. A Unix socket or loopback address needs no TLS."`
}

// PluginOverride is Plugin for one controller that names a plugin of its own.
// What is empty is taken from Global, but plaintext is not.
type PluginOverride struct {
	CAFile     string `toml:"caFile" flag:"csp-plugin-ca-file" usage:"Value of --csp-plugin-ca-file for this controller only."`
	CertFile   string `toml:"certFile" flag:"csp-plugin-cert-file" usage:"Value of --csp-plugin-cert-file for this controller only."`
	KeyFile    string `toml:"keyFile" flag:"csp-plugin-key-file" usage:"Value of --csp-plugin-key-file for this controller only."`
	ServerName string `toml:"serverName" flag:"csp-plugin-server-name" usage:"Value of --csp-plugin-server-name for this controller only."`
	TokenFile  string `toml:"tokenFile" flag:"csp-plugin-token-file" usage:"Value of --csp-plugin-token-file for this controller only."`
	Plaintext  bool   `toml:"plaintext" flag:"csp-plugin-plaintext" usage:"Value of --csp-plugin-plaintext for the plugin of this controller."`
}

// Nodes are left alone.
type Nodes struct {
	// Exclusions are label selectors; a node that one of them matches is never
	// repaired. A list in the file replaces the default; an empty one excludes no node.
	Exclusions []string `toml:"exclusions" flag:"exclude-nodes" usage:"Label selectors of nodes that the janitor never acts on. An empty list excludes no node."`
}

// NodesOverride is Nodes for one controller.
type NodesOverride struct {
	// Exclusions are label selectors of nodes that this controller never repairs.
	Exclusions []string `toml:"exclusions"`
}

// RebootNode configures the reboot controller.
type RebootNode struct {
	// Enabled switches the controller on.
	Enabled bool `toml:"enabled" flag:"reboot-enabled" usage:"If true, executes RebootNode objects."`
	// CSPPluginHost overrides Global.CSPPluginHost.
	CSPPluginHost string `toml:"cspPluginHost" flag:"reboot-csp-plugin-host" usage:"Address of the plugin for RebootNode objects, as host:port or unix:///path. Empty uses --csp-plugin-host."`
	// CSPPlugin describes how that plugin is called.
	CSPPlugin PluginOverride `toml:"cspPlugin" prefix:"reboot-"`
	// Nodes are those that this controller leaves alone, besides the global ones.
	Nodes NodesOverride `toml:"nodes"`
	// Timeout overrides Global.Timeout; 0 keeps it.
	Timeout time.Duration `toml:"timeout" flag:"reboot-timeout" usage:"Time from the reboot signal until the node must be Ready again. 0 uses global.timeout."`
	// ManualMode leaves the signal to a person, for this controller.
	ManualMode bool `toml:"manualMode"`
	// ResendAfter is how long a signal without an answer gets to show itself.
	ResendAfter time.Duration `toml:"resendAfter" flag:"resend-after" usage:"Time after which a signal without a response is sent again with the same idempotency key."`
	// PluginTimeout bounds one call of the plugin.
	PluginTimeout time.Duration `toml:"pluginTimeout" flag:"plugin-timeout" usage:"Timeout of one call to the plugin."`
	// PollInterval is how often a node is looked at when nothing enqueues it.
	PollInterval time.Duration `toml:"pollInterval" flag:"poll-interval" usage:"Interval between two checks of a node under remediation, in addition to its watch."`
	// Workers is how many objects are worked on at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of maintenance objects that are processed concurrently."`
}

// TerminateNode configures the termination controller. What is 0 is taken from
// the reboot controller, or, for Timeout, from Global.
type TerminateNode struct {
	// Enabled switches the controller on.
	Enabled bool `toml:"enabled" flag:"terminate-enabled" usage:"If true, executes TerminateNode objects."`
	// CSPPluginHost overrides Global.CSPPluginHost.
	CSPPluginHost string `toml:"cspPluginHost" flag:"terminate-csp-plugin-host" usage:"Address of the plugin for TerminateNode objects, as host:port or unix:///path. Empty uses --csp-plugin-host."`
	// CSPPlugin describes how that plugin is called.
	CSPPlugin PluginOverride `toml:"cspPlugin" prefix:"terminate-"`
	// Nodes are those that this controller leaves alone, besides the global ones.
	Nodes NodesOverride `toml:"nodes"`
	// Timeout overrides Global.Timeout.
	Timeout time.Duration `toml:"timeout"`
	// ManualMode leaves the signal to a person, for this controller.
	ManualMode bool `toml:"manualMode"`
	// ResendAfter, PluginTimeout and PollInterval are those of the reboot controller.
	ResendAfter   time.Duration `toml:"resendAfter"`
	PluginTimeout time.Duration `toml:"pluginTimeout"`
	PollInterval  time.Duration `toml:"pollInterval"`
}

// defaultConfig is the configuration without a file; it lacks the plugin's address.
func defaultConfig() Config {
	return Config{
		Global: Global{
			Timeout: 25 * time.Minute, TTL: 336 * time.Hour,
			Nodes: Nodes{Exclusions: []string{"node-role.kubernetes.io/control-plane"}},
		},
		RebootNode: RebootNode{
			Enabled: true, ResendAfter: 10 * time.Minute, PluginTimeout: 30 * time.Second, PollInterval: 15 * time.Second, Workers: 16,
		},
		TerminateNode: TerminateNode{Enabled: true},
		GPUReset:      defaultGPUReset(),
		Cluster:       lease.Cluster{Lease: leases()},
	}
}

// leases live long enough for a call of the plugin: it has to be over when a
// leader that cannot renew its lease stops.
func leases() lease.Config {
	c := lease.Default()
	c.Duration, c.RenewDeadline, c.RetryPeriod = 90*time.Second, 60*time.Second, 5*time.Second
	return c
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Cluster.Validate()}
	if c.Global.TTL < 0 {
		problems = append(problems, fmt.Errorf("global.ttl (--ttl) is %s: must not be negative", c.Global.TTL))
	}
	for _, one := range []nodeController{c.reboot(), c.terminate()} {
		if one.Enabled {
			problems = append(problems, one.validate(c.Lease))
		}
	}
	if c.GPUReset.Enabled {
		problems = append(problems, c.validateReset())
	}
	if c.RebootNode.Workers < 1 {
		problems = append(problems, fmt.Errorf("rebootNodeController.workers is %d: must be at least 1", c.RebootNode.Workers))
	}
	return errors.Join(problems...)
}
