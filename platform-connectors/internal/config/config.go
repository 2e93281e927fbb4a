// Package config holds what an operator can set about a platform connector.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// RoleNode is the connector of one node: its monitors' front door.
const RoleNode = "node"

// minSpool is room for a few of the largest batches, in bytes.
const minSpool = 16 << 20

// Config is the configuration of a platform connector.
type Config struct {
	// Role is what this connector is for; node is the only one.
	Role string `toml:"role" flag:"role" usage:"what this connector is for: node"`
	// NodeName is the node whose events are accepted; required.
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
	Store string `toml:"store" flag:"store" usage:"record store: sqlite:///path or postgres://user@host/database"`
	// SingleHost admits a sqlite store.
	SingleHost bool `toml:"singleHost" flag:"single-host" usage:"admit a sqlite store, which only the processes of one host can share"`
	// Kubernetes switches the Kubernetes sink and the binding of events to the
	// node's machine on or off.
	Kubernetes bool `toml:"kubernetes" flag:"kubernetes" usage:"show the node's faults as conditions and Events, and bind events to the machine of the Node object"`

	// Publishers is who may send what.
	Publishers Publishers `toml:"publishers"`

	Kube kube.Config `toml:"kube"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{
		Role: RoleNode, Socket: "/var/run/nvsentinel.sock", SocketMode: 0o660,
		SpoolDir: "/var/lib/nvsentinel/platform-connector", SpoolMaxBytes: 256 << 20, Kubernetes: true,
		Publishers: defaultPublishers(),
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	if c.Role != RoleNode {
		problems = append(problems, fmt.Errorf("role (--role) %q is not %s", c.Role, RoleNode))
	}
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
	if c.SpoolMaxBytes < minSpool {
		problems = append(problems, fmt.Errorf("spoolMaxBytes (--spool-max-bytes) %d is less than %d", c.SpoolMaxBytes, minSpool))
	}
	if err := storeopen.Check(c.Store, storeopen.Options{SingleHost: c.SingleHost}); err != nil {
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
