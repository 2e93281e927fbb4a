package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/cluster"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Roles of a connector.
const (
	// roleGateway is the connector between nodes and the store: nodes need no
	// account of the store.
	roleGateway = "gateway"
	// roleCluster is the connector of the control plane: it shows the faults of
	// cluster-wide publishers as conditions of their nodes.
	roleCluster = "cluster"
)

// Config is the configuration of a platform connector.
type Config struct {
	// Role is what this connector is for; required.
	Role string `toml:"role" bounds:"gateway, cluster" flag:"role" usage:"Role of this connector: gateway (between the node connectors and the store) or cluster (Node conditions for the faults of cluster-wide publishers). Required. The connector of a node is the program node-connector."`
	nodeconnector.Shared
	storeopen.Location
	// Gateway is what role gateway listens with.
	Gateway Gateway `toml:"gateway"`
	// Lease lets one of several connectors of role cluster act.
	Lease lease.Config `toml:"leaderElection"`
	// Coverage is what role cluster looks for besides.
	Coverage cluster.CoverageConfig `toml:"coverage"`
}

// Gateway is what role gateway listens with.
type Gateway struct {
	// Listen is host:port.
	Listen string `toml:"listen" flag:"gateway-listen" usage:"Address on which role gateway accepts node connectors, as host:port. Port 0 selects a free port."`
	// CertFile and KeyFile are its certificate, read again for each connection.
	CertFile string `toml:"certFile" flag:"gateway-cert-file" usage:"PEM file with the certificate of the gateway, read again for each connection."`
	KeyFile  string `toml:"keyFile" flag:"gateway-key-file" usage:"PEM file with the private key of the gateway's certificate."`
	// ClientCAFile signs the connectors' certificates; empty asks for none.
	ClientCAFile string `toml:"clientCAFile" flag:"gateway-client-ca-file" usage:"PEM file with the CA certificates that verify the client certificates of node connectors. Empty does not request client certificates, and connectors authenticate by token."`
	// Accounts are the service accounts of the nodes' connectors; required.
	Accounts []string `toml:"accounts" flag:"gateway-accounts" usage:"Service accounts of the node connectors, separated by commas, for example system:serviceaccount:nvsentinel:platform-connectors."`
	// Audience is the one that the connectors' tokens must be for.
	Audience string `toml:"audience" flag:"gateway-token-audience" usage:"Audience that the tokens of the node connectors must contain."`
	// TokenCacheTTL is how long a positive verdict about a token is remembered.
	TokenCacheTTL time.Duration `toml:"tokenCacheTTL" bounds:"above 0s, at most 10m" flag:"gateway-token-cache-ttl" usage:"Time that a valid token is cached before the next TokenReview, at most 10m."`
	// Reviews bounds the questions to the API server in flight.
	Reviews int `toml:"maxTokenReviews" bounds:"at least 1" flag:"gateway-max-token-reviews" usage:"Maximum number of concurrent TokenReview requests to the API server."`
	// PerNode bounds the calls of one node.
	PerNode int `toml:"callsPerNode" bounds:"at least 1" flag:"gateway-calls-per-node" usage:"Maximum number of concurrent calls per node. Further calls are rejected with a request to retry."`
	// NodeBytes bounds what one node brings in the long run, per second.
	NodeBytes int64 `toml:"bytesPerSecondPerNode" bounds:"at least 1 byte" flag:"gateway-bytes-per-second-per-node" usage:"Sustained limit of bytes per second per node. Further calls are rejected with a request to retry."`
	// DayBytes and DayRecords are the quota of one node for a day; 0 is none.
	DayBytes   int64 `toml:"bytesPerDayPerNode" bounds:"0, or at least 1048576 bytes" flag:"gateway-bytes-per-day-per-node" usage:"Bytes that a node may send per day (UTC). Beyond it, PERSIST_ONLY and repeated events are counted and not stored. 0 disables the limit."`
	DayRecords int64 `toml:"recordsPerDayPerNode" bounds:"0, or at least 1000" flag:"gateway-records-per-day-per-node" usage:"Records that a node may send per day (UTC). Beyond it, PERSIST_ONLY and repeated events are counted and not stored. 0 disables the limit."`
	// MaxBytes bounds the requests that are received and worked on.
	MaxBytes int64 `toml:"maxInFlightBytes" flag:"gateway-max-in-flight-bytes" usage:"Maximum size in bytes of all requests that are received and processed at the same time. Further requests wait before they are received."`
	// Connections bounds all connections, NodeConnections those of one node, PerAddress
	// those of one address on which no token was verified yet.
	Connections     int `toml:"maxConnections" bounds:"at least 1" flag:"gateway-max-connections" usage:"Maximum number of connections. Further connections are closed."`
	NodeConnections int `toml:"connectionsPerNode" bounds:"at least 1" flag:"gateway-connections-per-node" usage:"Maximum number of connections per node, identified by its token. Further connections are closed with an error."`
	PerAddress      int `toml:"connectionsPerAddress" bounds:"at least 1" flag:"gateway-connections-per-address" usage:"Maximum number of connections per address without a verified token. Further connections are closed with an error. If a NAT hides nodes, set it to the number of nodes behind one address."`
	// InspectAddress is where the store can be read, by anyone who reaches it; empty is
	// nowhere.
	InspectAddress string `toml:"inspectAddress" bounds:"of the loopback interface, or empty" enforced:"validateInspect" flag:"inspect-address" usage:"Address of the read-only store API of role gateway on the loopback interface, as host:port. The nvsentinel CLI reads it through a forwarded port. Requests are not authenticated: access requires the right to forward ports into the Pod. Empty disables it."`
}

// defaultConfig is the configuration without a file.
func defaultConfig() Config {
	return Config{
		Shared: nodeconnector.DefaultShared(), Lease: lease.Default(), Coverage: cluster.DefaultCoverage(),
		Gateway: Gateway{
			Listen: ":8443", CertFile: "/etc/nvsentinel/gateway/tls.crt", KeyFile: "/etc/nvsentinel/gateway/tls.key",
			Audience: gateway.Audience, TokenCacheTTL: 5 * time.Minute, Reviews: 16, PerNode: 4, NodeBytes: 2 << 20, DayBytes: 64 << 20, DayRecords: 20000,
			MaxBytes: 64 << 20, Connections: 20000, NodeConnections: 8, PerAddress: 64,
			InspectAddress: fmt.Sprintf("127.0.0.1:%d", remote.Port),
		},
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Shared.Validate(), c.Location.Validate()}
	switch c.Role {
	case roleCluster:
		problems = append(problems, c.validateCluster())
	case roleGateway:
		problems = append(problems, c.validateGateway())
	case "node":
		problems = append(problems, errors.New("role (--role) node was removed: run node-connector on nodes, with --gateway (docs/tasks/upgrade.md)"))
	default:
		problems = append(problems, fmt.Errorf("role (--role) %q is not %s or %s", c.Role, roleGateway, roleCluster))
	}
	return errors.Join(problems...)
}

// validateCluster checks what only the connector of the control plane needs.
func (c Config) validateCluster() error {
	var problems []error
	if !c.Kubernetes {
		problems = append(problems, errors.New("kubernetes (--kubernetes) is off, and role cluster requires it: enable it"))
	}
	if len(c.clusterAgents()) == 0 {
		problems = append(problems, errors.New("publishers.agent has no agent with clusterWide = true and coverage (--coverage) is off, so role cluster has no work: configure one of them"))
	}
	if c.Coverage.Enabled {
		problems = append(problems, c.Coverage.Validate())
	}
	return errors.Join(append(problems, c.Lease.Validate())...)
}

// clusterAgents are those whose faults role cluster shows; its own reports are among
// them.
func (c Config) clusterAgents() []string {
	agents := c.Publishers.Policy("").ClusterAgents()
	if c.Coverage.Enabled && !slices.Contains(agents, record.CoverageAgent) {
		agents = append(agents, record.CoverageAgent)
	}
	return agents
}

// maxTokenCacheTTL bounds how long a withdrawn account still gets in.
const maxTokenCacheTTL = 10 * time.Minute

// The least quota of a node: one that every node uses up would leave only first faults.
const minDayBytes, minDayRecords = 1 << 20, 1000

// validateGateway checks what only the gateway needs.
func (c Config) validateGateway() error {
	g := c.Gateway
	var problems []error
	if !c.Kubernetes {
		problems = append(problems, errors.New("kubernetes (--kubernetes) is off, and role gateway requires it to verify tokens: enable it"))
	}
	if _, _, err := net.SplitHostPort(g.Listen); err != nil {
		problems = append(problems, fmt.Errorf("gateway.listen (--gateway-listen) %q is not of the form host:port", g.Listen))
	}
	problems = append(problems, g.validateInspect())
	for _, f := range []struct{ key, value string }{
		{"gateway.certFile (--gateway-cert-file)", g.CertFile}, {"gateway.keyFile (--gateway-key-file)", g.KeyFile},
		{"gateway.audience (--gateway-token-audience)", g.Audience},
	} {
		if f.value == "" {
			problems = append(problems, fmt.Errorf("%s is empty", f.key))
		}
	}
	if len(g.Accounts) == 0 {
		problems = append(problems, errors.New("gateway.accounts (--gateway-accounts) is empty, so no connector could connect: name at least one service account"))
	}
	if g.TokenCacheTTL <= 0 || g.TokenCacheTTL > maxTokenCacheTTL {
		problems = append(problems, fmt.Errorf("gateway.tokenCacheTTL (--gateway-token-cache-ttl) %s is not in the range of 0 to %s", g.TokenCacheTTL, maxTokenCacheTTL))
	}
	if g.NodeBytes < 1 {
		problems = append(problems, fmt.Errorf("gateway.bytesPerSecondPerNode (--gateway-bytes-per-second-per-node) %d is less than 1", g.NodeBytes))
	}
	if g.DayBytes != 0 && g.DayBytes < minDayBytes {
		problems = append(problems, fmt.Errorf("gateway.bytesPerDayPerNode (--gateway-bytes-per-day-per-node) %d is neither 0 nor at least %d", g.DayBytes, minDayBytes))
	}
	if g.DayRecords != 0 && g.DayRecords < minDayRecords {
		problems = append(problems, fmt.Errorf("gateway.recordsPerDayPerNode (--gateway-records-per-day-per-node) %d is neither 0 nor at least %d", g.DayRecords, minDayRecords))
	}
	if g.MaxBytes < gateway.MaxMessage {
		problems = append(problems, fmt.Errorf("gateway.maxInFlightBytes (--gateway-max-in-flight-bytes) %d is less than %d", g.MaxBytes, gateway.MaxMessage))
	}
	for _, f := range []struct {
		key   string
		value int
	}{
		{"gateway.maxTokenReviews (--gateway-max-token-reviews)", g.Reviews}, {"gateway.callsPerNode (--gateway-calls-per-node)", g.PerNode},
		{"gateway.maxConnections (--gateway-max-connections)", g.Connections}, {"gateway.connectionsPerNode (--gateway-connections-per-node)", g.NodeConnections},
		{"gateway.connectionsPerAddress (--gateway-connections-per-address)", g.PerAddress},
	} {
		if f.value < 1 {
			problems = append(problems, fmt.Errorf("%s is less than 1", f.key))
		}
	}
	return errors.Join(problems...)
}

// validateInspect refuses an address that others than this host, or this pod, reach.
func (g Gateway) validateInspect() error {
	if g.InspectAddress == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(g.InspectAddress)
	if err != nil {
		return fmt.Errorf("gateway.inspectAddress (--inspect-address) %q is not of the form host:port", g.InspectAddress)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("gateway.inspectAddress (--inspect-address) %q is not an address of the loopback interface, such as 127.0.0.1:%d: requests there are not authenticated, "+
			"so that only accounts that can forward a port into the Pod, or execute a command in it, can read the records", g.InspectAddress, remote.Port)
	}
	return nil
}
