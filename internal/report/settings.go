package report

import "github.com/nvidia/nvsentinel/data-models/record"

// Connector is the part of a publisher's configuration that states how it reaches the
// connector of its node; it is embedded.
type Connector struct {
	_ struct{} `block:"Node connector" usage:"Address of the connector to which a publisher reports events, and the token that it sends"`
	// Socket is the platform connector of the node.
	Socket string `toml:"platformConnectorSocket" bounds:"not empty" flag:"platform-connector-socket" usage:"Address of the platform connector socket, for example unix:///var/run/nvsentinel.sock."`
	// TokenPath is a projected service-account token; empty sends none.
	TokenPath string `toml:"platformConnectorTokenPath" flag:"platform-connector-token-path" usage:"File with the bearer token for the platform connector. Events about other nodes are accepted only with a token. Empty sends no token."`
}

// DefaultConnector is the usual socket, without a token.
func DefaultConnector() Connector { return Connector{Socket: "unix:///var/run/nvsentinel.sock"} }

// Acting is the part of a publisher's configuration that states whether its events act; it
// is embedded.
type Acting struct {
	_ struct{} `block:"Processing strategy" usage:"Whether the events of a publisher lead to actions ([processing strategy](../processing-strategy.md))"`
	// Strategy of the events: PROCESS or PERSIST_ONLY.
	Strategy record.Strategy `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"processingStrategy" alias:"processing-strategy" usage:"Processing strategy of events whose policy, rule or check sets none: PROCESS or PERSIST_ONLY."`
}
