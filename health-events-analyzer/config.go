package healtheventsanalyzer

import (
	"errors"
	"fmt"
	"os"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Config is what an operator can set of health-events-analyzer.
type Config struct {
	storeopen.Location
	lease.Cluster
	report.Acting

	// RulesPath is a file of rules that stands in for the built-in ones. It, and
	// what is in it, is taken over while the service runs.
	RulesPath string `toml:"rulesPath" live:"true" flag:"rules-path" usage:"File with the rules, read again when it changes. Empty uses the built-in rules."`
	// Publishers is a connector's configuration file. The check names that it gives to other
	// agents are refused as names of rules; empty takes the connectors' built-in names.
	Publishers string `toml:"publishersConfigPath" live:"true" flag:"publishers-config-path" usage:"Configuration file of the connectors. Check names that its [[publishers.agent]] entries assign to other agents are rejected in the rule file. Empty uses the built-in entries."`
	// Socket is the platform connector of the node.
	Socket string `toml:"platformConnectorSocket" bounds:"not empty" flag:"socket" usage:"Address of the platform connector socket, for example unix:///var/run/nvsentinel.sock."`
	// TokenPath is a projected service-account token; the connector takes events
	// about other nodes only with one.
	TokenPath string `toml:"platformConnectorTokenPath" flag:"socket-token-path" usage:"File with the bearer token for the platform connector. Empty sends no token."`
	// Workers is how many nodes are evaluated at once.
	Workers int `toml:"workers" bounds:"at least 1" flag:"workers" usage:"Maximum number of nodes that are evaluated concurrently."`
	// CachedEvents bounds the events of all nodes that are kept in memory between
	// evaluations; a node that is dropped is read from the store again. Up to half
	// of them are in the window of rules with scope = "cluster", if there are any.
	CachedEvents int `toml:"cachedEvents" bounds:"at least 0" flag:"cached-events" usage:"Maximum number of events kept in memory. Events of other nodes are read from the store when a new event of the node arrives. Cluster-wide rules use at most half of it."`
}

// defaultConfig has the built-in rules.
func defaultConfig() Config {
	return Config{
		Acting: report.Acting{Strategy: record.Process}, Socket: "unix:///var/run/nvsentinel.sock", Workers: 16, CachedEvents: 500_000, Cluster: lease.DefaultCluster(),
	}
}

// rules returns the active rules.
func (c Config) rules() ([]rule.Rule, error) {
	if c.RulesPath == "" {
		return rule.Default(), nil
	}
	data, err := os.ReadFile(c.RulesPath)
	if err != nil {
		return nil, fmt.Errorf("reading the rules (rulesPath): %w", err)
	}
	names, err := report.ReadNames(c.Publishers)
	if err != nil {
		return nil, err
	}
	return rule.Parse(c.RulesPath, data, names.Of(record.AnalyzerAgent))
}

// Files are those whose content counts as the configuration's.
func (c Config) Files() []string {
	if c.RulesPath == "" {
		return nil
	}
	if c.Publishers != "" {
		return []string{c.RulesPath, c.Publishers}
	}
	return []string{c.RulesPath}
}

// Validate checks everything.
func (c Config) Validate() error {
	_, err := c.rules()
	return errors.Join(config.CheckBounds(c), err, c.Location.Validate(), c.Cluster.Validate())
}
