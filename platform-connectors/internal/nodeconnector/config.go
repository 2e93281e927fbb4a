package nodeconnector

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// minSpool is enough for a few of the largest batches, in bytes.
const minSpool = 16 << 20

// Shared is what an operator can set about every connector, of a node or not.
type Shared struct {
	_ struct{} `block:"Publishers" usage:"Publishers that may send events to a connector, and the status that connectors write to Kubernetes ([connector](../connector.md))"`

	// Kubernetes switches what needs the API server on or off.
	Kubernetes bool `toml:"kubernetes" flag:"kubernetes" usage:"If true, writes faults as conditions and Events of Nodes, and binds the events of a node to the machine of its Node object."`
	// HeapGrowth trades memory for processor time under load.
	HeapGrowth int `toml:"gcPercent" bounds:"100 to 1000" flag:"gc-percent" usage:"Garbage collection percentage under load, as in GOGC. At rest it is 100, the default of Go. The environment variable GOGC takes precedence."`
	// Publishers is who may send what.
	Publishers Publishers `toml:"publishers"`

	Kube nodeclient.Config `toml:"kube"`
}

// DefaultShared is Shared without a file.
func DefaultShared() Shared {
	return Shared{Kubernetes: true, HeapGrowth: 200, Publishers: DefaultPublishers()}
}

// Growth implements daemon.Growing.
func (s Shared) Growth() int { return s.HeapGrowth }

// Validate joins everything that is wrong.
func (s Shared) Validate() error {
	problems := []error{s.Publishers.Validate(s.Kubernetes)}
	if s.HeapGrowth < 100 || s.HeapGrowth > 1000 {
		problems = append(problems, fmt.Errorf("gcPercent (--gc-percent) %d is not between 100 and 1000", s.HeapGrowth))
	}
	if err := s.Kube.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("kube: %w", err))
	}
	return errors.Join(problems...)
}

// Config is what an operator can set about the ingest endpoint of a node.
type Config struct {
	// NodeName is the node whose events are accepted; required.
	NodeName string `toml:"nodeName" flag:"node-name" usage:"Name of the node that runs this connector. Events of other nodes are rejected."`
	// Socket is the path of the Unix socket.
	Socket string `toml:"socket" flag:"socket" usage:"Path of the Unix socket that accepts health events."`
	// SocketMode is the socket's permissions.
	SocketMode Mode `toml:"socketMode" flag:"socket-mode" usage:"Permissions of the socket, in octal."`
	// SpoolDir is a folder on the node's own disk.
	SpoolDir string `toml:"walDir" flag:"wal-dir" usage:"Directory of the write-ahead log, on the local disk of the node."`
	// SpoolMaxBytes bounds what is accepted and not stored yet.
	SpoolMaxBytes int64 `toml:"walMaxBytes" bounds:"at least 16777216 bytes" flag:"wal-max-bytes" usage:"Maximum size in bytes of accepted events that are not stored yet. Each event counts 256 more bytes for its memory. When the log is full, publishers must wait."`

	// Pipeline names the stages that change events on their way to the store;
	// empty changes nothing. It is read again when it changes.
	Pipeline string `toml:"pipelineConfig" flag:"pipeline-config" usage:"TOML file that names the pipeline stages which transform events before they are stored, read again when it changes. Empty transforms nothing."`
	// PersistOnlyToProcess permits the pipeline's rules to make PROCESS of PERSIST_ONLY.
	PersistOnlyToProcess bool `toml:"allowPersistOnlyToProcess" flag:"allow-persist-only-to-process" usage:"If true, permits pipeline rules to change the strategy of an event from PERSIST_ONLY to PROCESS, so that it leads to actions."`
	// RepeatWindow is how long identical events are counted in one record; 0 stores
	// each of them.
	RepeatWindow time.Duration `toml:"dedupWindow" bounds:"0s to 1m" flag:"dedup-window" usage:"Time that repeated events are counted before they are stored as one record with their count, at most 1m. An event is repeated if it equals a stored event in everything but ID, time and order. 0s stores every event."`
	// Gateway configures the connection to the gateways.
	Gateway upstream.Config `toml:"gateway"`
	Shared
}

// Default is the configuration without a file.
func Default() Config {
	return Config{
		Socket: "/var/run/nvsentinel.sock", SocketMode: 0o660,
		SpoolDir: "/var/lib/nvsentinel/platform-connector", SpoolMaxBytes: 256 << 20,
		RepeatWindow: pipeline.MaxWindow, Gateway: upstream.Default(), Shared: DefaultShared(),
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Shared.Validate(), c.Gateway.Validate()}
	if c.NodeName == "" {
		problems = append(problems, errors.New("nodeName (--node-name) is empty"))
	}
	for _, p := range []struct{ key, path string }{
		{"socket (--socket)", c.Socket}, {"walDir (--wal-dir)", c.SpoolDir},
	} {
		if !filepath.IsAbs(p.path) {
			problems = append(problems, fmt.Errorf("%s %q is not an absolute path", p.key, p.path))
		}
	}
	if c.Pipeline != "" && !filepath.IsAbs(c.Pipeline) {
		problems = append(problems, fmt.Errorf("pipelineConfig (--pipeline-config) %q is not an absolute path", c.Pipeline))
	}
	if c.RepeatWindow < 0 || c.RepeatWindow > pipeline.MaxWindow {
		problems = append(problems, fmt.Errorf("dedupWindow (--dedup-window) %s is not in the range of 0s to %s", c.RepeatWindow, pipeline.MaxWindow))
	}
	if c.SpoolMaxBytes < minSpool {
		problems = append(problems, fmt.Errorf("walMaxBytes (--wal-max-bytes) %d is less than %d", c.SpoolMaxBytes, minSpool))
	}
	return errors.Join(problems...)
}

// Mode is file permissions, written in octal.
type Mode fs.FileMode

// UnmarshalText reads "0660".
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("%q is not a file mode such as 0660", text)
	}
	*m = Mode(n)
	return nil
}

// String writes "0660".
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// maxTokenCacheTTL bounds how long a positive verdict about a token may be
// remembered: for that long a withdrawn account still gets in.
const maxTokenCacheTTL = 10 * time.Minute

// Publishers is who may send what.
type Publishers struct {
	// Tokens is off, optional or required.
	Tokens string `toml:"tokens" bounds:"off, optional, required" flag:"publisher-tokens" usage:"Service account tokens of publishers: off (ignored), optional (verified if sent) or required."`
	// Audience is the one that tokens must be for.
	Audience string `toml:"audience" flag:"publisher-token-audience" usage:"Audience that the tokens of publishers must contain."`
	// TokenCacheTTL is how long a positive verdict about a token is remembered.
	TokenCacheTTL time.Duration `toml:"tokenCacheTTL" flag:"publisher-token-cache-ttl" usage:"Time that a valid token is cached before the next TokenReview."`
	// UIDs are the users that may use the socket. Empty admits every user that its
	// permissions admit.
	UIDs []uint32 `toml:"uids"`
	// Agents replaces the list of known agents, authz.DefaultAgents.
	Agents []authz.Agent `toml:"agent"`
}

// DefaultPublishers checks a token that is given.
func DefaultPublishers() Publishers {
	return Publishers{Tokens: authn.TokensOptional, Audience: authn.Audience, TokenCacheTTL: 2 * time.Minute}
}

// Validate joins all errors; kubernetes is true if tokens can be verified.
func (p Publishers) Validate(kubernetes bool) error {
	var problems []error
	if !slices.Contains([]string{authn.TokensOff, authn.TokensOptional, authn.TokensRequired}, p.Tokens) {
		problems = append(problems, fmt.Errorf("publishers.tokens (--publisher-tokens) %q is not off, optional or required", p.Tokens))
	}
	if p.Tokens == authn.TokensRequired && !kubernetes {
		problems = append(problems, errors.New("publishers.tokens (--publisher-tokens) is required, but tokens cannot be verified without kubernetes (--kubernetes): enable it"))
	}
	if p.Audience == "" {
		problems = append(problems, errors.New("publishers.audience (--publisher-token-audience) is empty"))
	}
	if p.TokenCacheTTL <= 0 || p.TokenCacheTTL > maxTokenCacheTTL {
		problems = append(problems, fmt.Errorf("publishers.tokenCacheTTL (--publisher-token-cache-ttl) %s is not in the range of 0 to %s", p.TokenCacheTTL, maxTokenCacheTTL))
	}
	if err := authz.ValidateAgents(p.Agents); err != nil {
		problems = append(problems, fmt.Errorf("publishers: %w", err))
	}
	return errors.Join(problems...)
}

// Policy is what the publishers' part of the configuration allows at the
// connector of a node.
func (p Publishers) Policy(node string) authz.Policy {
	agents := p.Agents
	if agents == nil {
		agents = authz.DefaultAgents()
	}
	return authz.Policy{Node: node, UIDs: p.UIDs, RequireToken: p.Tokens == authn.TokensRequired, Agents: agents}
}
