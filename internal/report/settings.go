package report

import "github.com/nvidia/nvsentinel/data-models/record"

// Connector is the part of a publisher's configuration that says how it reaches the
// connector of its node; it is embedded.
type Connector struct {
	_ struct{} `block:"Connector of the node" usage:"Where a publisher reports events, and by which token"`
	// Socket is the platform connector of the node.
	Socket string `toml:"platformConnectorSocket" bounds:"not empty" flag:"platform-connector-socket" usage:"socket of the platform connector"`
	// TokenPath is a projected service-account token; empty sends none.
	TokenPath string `toml:"platformConnectorTokenPath" flag:"platform-connector-token-path" usage:"file with the bearer token for the platform connector, which takes events about other nodes only with one; empty sends none"`
}

// DefaultConnector is the usual socket, without a token.
func DefaultConnector() Connector { return Connector{Socket: "unix:///var/run/nvsentinel.sock"} }

// Acting is the part of a publisher's configuration that says whether its events act; it
// is embedded.
type Acting struct {
	_ struct{} `block:"Processing strategy" usage:"Whether the events of a publisher are acted upon ([processing-strategy](../processing-strategy.md))"`
	// Strategy of the events: PROCESS or PERSIST_ONLY.
	Strategy record.Strategy `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"processingStrategy" alias:"processing-strategy" usage:"PROCESS or PERSIST_ONLY, where a policy, a rule or a check does not say it"`
}
