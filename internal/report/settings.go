package report

import (
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Connector is the part of a publisher's configuration that says how it reaches the
// connector of its node; it is embedded.
type Connector struct {
	_ struct{} `block:"Connector of the node" usage:"Where a publisher reports events, and by which token"`
	// Socket is the platform connector of the node.
	Socket string `toml:"platformConnectorSocket" flag:"platform-connector-socket" usage:"socket of the platform connector"`
	// TokenPath is a projected service-account token; empty sends none.
	TokenPath string `toml:"platformConnectorTokenPath" flag:"platform-connector-token-path" usage:"file with the bearer token for the platform connector, which takes events about other nodes only with one; empty sends none"`
}

// DefaultConnector is the usual socket, without a token.
func DefaultConnector() Connector { return Connector{Socket: "unix:///var/run/nvsentinel.sock"} }

// Validate says what is missing.
func (c Connector) Validate() error {
	if c.Socket == "" {
		return errors.New("platformConnectorSocket (--platform-connector-socket) is empty")
	}
	return nil
}

// Acting is the part of a publisher's configuration that says whether its events act; it
// is embedded.
type Acting struct {
	_ struct{} `block:"Processing strategy" usage:"Whether the events of a publisher are acted upon ([processing-strategy](../processing-strategy.md))"`
	// Strategy of the events: PROCESS or PERSIST_ONLY.
	Strategy string `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"processingStrategy" alias:"processing-strategy" usage:"PROCESS or PERSIST_ONLY, where a policy, a rule or a check does not say it"`
}

// Validate refuses another word.
func (a Acting) Validate() error {
	if _, err := record.ParseStrategy(a.Strategy); err != nil {
		return fmt.Errorf("processingStrategy (--processingStrategy): %w", err)
	}
	return nil
}

// Node is the part of the configuration of a monitor that runs on each node; it is
// embedded.
type Node struct {
	_ struct{} `block:"Monitor of a node" usage:"What a monitor of a node is told of its node, and where its events wait for the connector"`
	// NodeName is the Kubernetes name of the node; required.
	NodeName string `toml:"nodeName" flag:"node-name" usage:"name of the node this monitor runs on"`
	// BootIDPath holds the id of the running boot. A file that stands in for the
	// kernel's must be replaced by renaming, never written in place.
	BootIDPath string `toml:"bootIDPath" flag:"boot-id-path" usage:"file with the id of the running boot"`
	// StateDir holds the outbox; it must survive a reboot.
	StateDir string `toml:"stateDir" flag:"state-dir" usage:"folder of the outbox; it must survive a reboot"`
	// OutboxMiB bounds the events that wait for the connector, in MiB.
	OutboxMiB int `toml:"outboxMiB" bounds:"at least 1 MiB" flag:"outbox-mib" usage:"bound of the outbox in MiB; when it is full the monitor reports nothing new until something left: faults begin and end later, and a log is read no further"`
	Connector
	Acting
}

// DefaultNode acts, and keeps up to 64 MiB of events in the usual folder of a monitor.
func DefaultNode(monitor string) Node {
	return Node{
		BootIDPath: "/proc/sys/kernel/random/boot_id", StateDir: "/var/lib/nvsentinel/" + monitor, OutboxMiB: 64,
		Connector: DefaultConnector(), Acting: Acting{Strategy: string(record.Process)},
	}
}

// Validate joins everything that is wrong.
func (n Node) Validate() error {
	problems := []error{n.Connector.Validate(), n.Acting.Validate()}
	for _, required := range [][2]string{
		{"nodeName (--node-name)", n.NodeName}, {"bootIDPath (--boot-id-path)", n.BootIDPath}, {"stateDir (--state-dir)", n.StateDir},
	} {
		if required[1] == "" {
			problems = append(problems, fmt.Errorf("%s is empty", required[0]))
		}
	}
	if n.OutboxMiB < 1 {
		problems = append(problems, fmt.Errorf("outboxMiB (--outbox-mib) %d is less than 1", n.OutboxMiB))
	}
	return errors.Join(problems...)
}
