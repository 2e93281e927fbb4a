// Package config holds what an operator can set about a platform connector.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Roles of a connector.
const (
	// RoleNode is the connector of one node: its monitors' front door.
	RoleNode = "node"
	// RoleCluster is the connector of the control plane: it shows the faults of
	// cluster-wide publishers as conditions of their nodes.
	RoleCluster = "cluster"
)

// Accounts of the store.
const (
	// AccountOwner makes the tables and may do everything.
	AccountOwner = "owner"
	// AccountAppend may append records and dead letters, and nothing else.
	AccountAppend = "append"
)

// minSpool is room for a few of the largest batches, in bytes.
const minSpool = 16 << 20

// Config is the configuration of a platform connector.
type Config struct {
	// Role is what this connector is for.
	Role string `toml:"role" flag:"role" usage:"what this connector is for: node (the front door of a node) or cluster (the conditions of cluster-wide publishers' faults)"`
	// NodeName is the node whose events are accepted; required by role node.
	NodeName string `toml:"nodeName" flag:"node-name" usage:"the connector's node; events of other nodes are refused"`
	// Socket is the path of the Unix socket.
	Socket string `toml:"socket" flag:"socket" usage:"path of the Unix socket that accepts health events"`
	// SocketMode is the socket's permissions.
	SocketMode Mode `toml:"socketMode" flag:"socket-mode" usage:"permissions of the socket, octal"`
	// SpoolDir is a folder on the node's own disk.
	SpoolDir string `toml:"spoolDir" flag:"spool-dir" usage:"folder of the durable spool, on the node's own disk"`
	// SpoolMaxBytes bounds what is accepted and not stored yet.
	SpoolMaxBytes int64 `toml:"spoolMaxBytes" flag:"spool-max-bytes" usage:"bytes of accepted events that are not stored yet, at most; then publishers have to wait"`
	// Store is the address of the record store; required.
	Store string `toml:"store" flag:"store" usage:"address of the records: sqlite:///path, postgres://user@host/database or mongodb://host,host/database"`
	// StoreAccount is what the store's account may do; by role node only.
	StoreAccount string `toml:"storeAccount" flag:"store-account" usage:"what the store's account may do, role node only: owner (everything) or append (nothing but append records; docs/stores.md)"`
	// Datastore completes the address, or names the store without one.
	Datastore storeopen.Parts `toml:"datastore"`
	// SingleHost admits a sqlite store.
	SingleHost bool `toml:"singleHost" flag:"single-host" usage:"admit a sqlite store, which only the processes of one host can share"`
	// Kubernetes switches the Kubernetes sink and the binding of events to the
	// node's machine on or off.
	Kubernetes bool `toml:"kubernetes" flag:"kubernetes" usage:"show the node's faults as conditions and Events, and bind events to the machine of the Node object"`

	// Pipeline names the stages that change events on their way to the store;
	// empty changes nothing. It is read again when it changes.
	Pipeline string `toml:"pipelineConfig" flag:"pipeline-config" usage:"TOML file that names the stages which change events on their way to the store; empty changes nothing; read again when it changes"`
	// Publishers is who may send what.
	Publishers Publishers `toml:"publishers"`

	Kube kube.Config `toml:"kube"`
	// Election lets one of several connectors of role cluster act.
	Election lease.Config `toml:"leaderElection"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{
		Role: RoleNode, StoreAccount: AccountOwner, Socket: "/var/run/nvsentinel.sock", SocketMode: 0o660,
		SpoolDir: "/var/lib/nvsentinel/platform-connector", SpoolMaxBytes: 256 << 20, Kubernetes: true,
		Publishers: defaultPublishers(), Election: lease.Default(),
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	switch c.Role {
	case RoleNode:
		problems = append(problems, c.validateNode())
	case RoleCluster:
		problems = append(problems, c.validateCluster())
	default:
		problems = append(problems, fmt.Errorf("role (--role) %q is not %s or %s", c.Role, RoleNode, RoleCluster), c.validateNode())
	}
	if err := storeopen.Check(c.Store, storeopen.Options{SingleHost: c.SingleHost, Parts: c.Datastore}); err != nil {
		problems = append(problems, fmt.Errorf("store (--store): %w", err))
	}
	if err := c.Publishers.validate(c.Kubernetes); err != nil {
		problems = append(problems, err)
	}
	if err := c.Kube.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("kube: %w", err))
	}
	return errors.Join(problems...)
}

// validateNode checks what only the front door of a node needs.
func (c Config) validateNode() error {
	var problems []error
	if c.NodeName == "" {
		problems = append(problems, errors.New("nodeName (--node-name) is empty"))
	}
	for _, p := range []struct{ key, path string }{
		{"socket (--socket)", c.Socket}, {"spoolDir (--spool-dir)", c.SpoolDir},
	} {
		if !filepath.IsAbs(p.path) {
			problems = append(problems, fmt.Errorf("%s %q is not an absolute path", p.key, p.path))
		}
	}
	if c.Pipeline != "" && !filepath.IsAbs(c.Pipeline) {
		problems = append(problems, fmt.Errorf("pipelineConfig (--pipeline-config) %q is not an absolute path", c.Pipeline))
	}
	if c.StoreAccount != AccountOwner && c.StoreAccount != AccountAppend {
		problems = append(problems, fmt.Errorf("storeAccount (--store-account) %q is not %s or %s", c.StoreAccount, AccountOwner, AccountAppend))
	}
	if c.SpoolMaxBytes < minSpool {
		problems = append(problems, fmt.Errorf("spoolMaxBytes (--spool-max-bytes) %d is less than %d", c.SpoolMaxBytes, minSpool))
	}
	return errors.Join(problems...)
}

// validateCluster checks what only the connector of the control plane needs.
func (c Config) validateCluster() error {
	var problems []error
	if c.StoreAccount == AccountAppend {
		problems = append(problems, errors.New("storeAccount (--store-account) is append: role cluster reads records"))
	}
	if !c.Kubernetes {
		problems = append(problems, errors.New("kubernetes (--kubernetes) is off: role cluster has nothing else to do"))
	}
	if len(c.Publishers.Policy("").ClusterAgents()) == 0 {
		problems = append(problems, errors.New("publishers.agent has no agent with clusterWide = true: role cluster has nothing to show"))
	}
	return errors.Join(append(problems, c.Election.Validate())...)
}

// Mode is file permissions, written in octal.
type Mode fs.FileMode

// UnmarshalText reads "0660".
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("%q is not permissions such as 0660", text)
	}
	*m = Mode(n)
	return nil
}

// String writes "0660".
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }
