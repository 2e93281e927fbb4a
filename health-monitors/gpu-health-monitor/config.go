package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is the configuration of the monitor.
type Config struct {
	connector.Config

	// Mode is remote (a host engine of somebody else's) or embedded (one within this
	// monitor).
	Mode string `toml:"dcgmMode" bounds:"remote, embedded" flag:"dcgm-mode" usage:"DCGM mode: remote connects to the host engine at --dcgm-addr, embedded runs a host engine in this process."`
	// Address of the host engine.
	Address string `toml:"dcgmAddr" bounds:"not empty" flag:"dcgm-addr" usage:"Address of the host engine in mode remote, as host:port or unix:///path."`
	// PollInterval is how often DCGM is looked at.
	PollInterval time.Duration `toml:"pollInterval" bounds:"at least 1s" flag:"poll-interval" usage:"Interval between two polls of DCGM. Each poll costs the host engine a few milliseconds, and DCGM evaluates samples of 30s."`
	// CallDeadline is that of each call of DCGM.
	CallDeadline time.Duration `toml:"callDeadline" bounds:"at least 6s" flag:"call-deadline" usage:"Timeout of one DCGM call, after which DCGM counts as hanging. A connection attempt to an absent host engine takes 5s."`
	// ReconnectPause is that before another connection after one that failed at once.
	ReconnectPause time.Duration `toml:"reconnectBackoff" bounds:"at least 1s" flag:"reconnect-backoff" usage:"Initial backoff before a new connection to DCGM. It doubles up to 2m while connections fail, because the host engine keeps the watches of every connection."`
	// SettleTime is for how long what shows a fault has to have recent samples before the
	// fault can end.
	SettleTime time.Duration `toml:"settleTime" bounds:"at least 0s" flag:"settle-time" usage:"Time during which every poll over one connection must have recent samples of the fields that indicate a fault before the fault can recover."`
	// EscalateAfter restarts a node whose DCGM does not answer.
	EscalateAfter int `toml:"connectivityFailureEscalationThreshold" bounds:"at least 0" flag:"connectivity-failure-escalation-threshold" usage:"Number of consecutive failed polls after which GpuDcgmConnectivityFailure recommends RESTART_BM. 0 never recommends it."`
	// ErrorMapping is merged over the built-in table.
	ErrorMapping string `toml:"dcgmErrorMappingConfigFile" flag:"dcgm-error-mapping-config-file" usage:"CSV file with lines of name,action that override the built-in mapping of DCGM errors. Empty uses the built-in mapping only."`
	// Suppressed codes are counted and not reported.
	Suppressed []string `toml:"suppressedErrorCodes" flag:"suppressed-error-codes" usage:"DCGM error codes that are counted but not reported, for example DCGM_FR_NVLINK_DOWN."`
	// UnbridgedPCIe suppresses NVLinks that are down on PCIe cards.
	UnbridgedPCIe bool `toml:"suppressNvlinkDownUnbridgedPCIe" flag:"suppress-nvlink-down-unbridged-pcie" usage:"If true, does not report NVLinks that are down on PCIe cards if the metadata file shows that no NVLink of the card is up."`
	// Checks overrides single checks, by name.
	Checks map[string]Check `toml:"checks"`
	// MetadataPath is the node's GPU metadata file; it may be missing.
	MetadataPath string `toml:"metadataPath" flag:"metadata-path" usage:"Path of the GPU metadata file of the node."`
}

// Check overrides the settings of one check. An empty key keeps the built-in value.
type Check struct {
	// Strategy of the check's events: PROCESS or PERSIST_ONLY.
	Strategy string `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY"`
	// Raise and Clear are [k, n]: in k of the last n polls.
	Raise []int `toml:"raise"`
	Clear []int `toml:"clear"`
	// For is how long every poll must show the fault, in addition to Raise.
	For *time.Duration `toml:"for" bounds:"at least 0s"`
}

// Modes.
const (
	Remote   = "remote"
	Embedded = "embedded"
)

// Default is the configuration of a node without special wishes.
var Default = Config{
	Config: connector.Default(check.Agent, 64),
	Mode:   Remote, Address: "localhost:5555", PollInterval: 15 * time.Second, CallDeadline: 45 * time.Second, SettleTime: time.Minute,
	ReconnectPause: 5 * time.Second, MetadataPath: "/var/lib/nvsentinel/gpu_metadata.json",
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c)}
	if _, err := check.Load(c.ErrorMapping); err != nil {
		problems = append(problems, fmt.Errorf("dcgmErrorMappingConfigFile (--dcgm-error-mapping-config-file): %w", err))
	}
	_, _, err := c.rules()
	return errors.Join(append(problems, err)...)
}

// checkNames are the names of all checks.
func checkNames() []string {
	return append(reading.Checks(), check.Connectivity, check.Unresponsive, check.LostGPU, check.Margin, check.XIDs)
}

// rules are those of the checks: the defaults, with what the operator configures.
func (c Config) rules() (rules map[string]check.Rule, otherwise check.Rule, err error) {
	rules, otherwise = check.DefaultRules(c.Strategy)
	var problems []error
	for name, given := range c.Checks {
		if !slices.Contains(checkNames(), name) {
			problems = append(problems, fmt.Errorf("checks.%s is not a check", name))
			continue
		}
		rule, ok := rules[name]
		if !ok {
			rule = otherwise
		}
		if rule, err = given.over(rule); err != nil {
			problems = append(problems, fmt.Errorf("checks.%s: %w", name, err))
		}
		rules[name] = rule
	}
	return rules, otherwise, errors.Join(problems...)
}

// over is a rule with what the operator sets for its check.
func (c Check) over(rule check.Rule) (check.Rule, error) {
	if c.Strategy != "" {
		s, err := record.ParseStrategy(c.Strategy)
		if err != nil {
			return rule, fmt.Errorf("processingStrategy: %w", err)
		}
		rule.Strategy = s
	}
	if c.For != nil {
		if rule.For = *c.For; rule.For < 0 {
			return rule, fmt.Errorf("for %s is negative", rule.For)
		}
	}
	for _, x := range []struct {
		name  string
		given []int
		to    *check.Share
	}{{"raise", c.Raise, &rule.Raise}, {"clear", c.Clear, &rule.Clear}} {
		if x.given == nil {
			continue
		}
		if len(x.given) != 2 {
			return rule, fmt.Errorf("%s is not of the form [k, n]", x.name)
		}
		*x.to = check.Share{K: x.given[0], N: x.given[1]}
		if err := x.to.Validate(); err != nil {
			return rule, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return rule, nil
}

// Policy is the configuration of the decisions.
func (c Config) Policy() (check.Policy, error) {
	table, err := check.Load(c.ErrorMapping)
	if err != nil {
		return check.Policy{}, err
	}
	rules, otherwise, err := c.rules()
	if err != nil {
		return check.Policy{}, err
	}
	suppressed := map[string]bool{}
	for _, code := range c.Suppressed {
		suppressed[code] = true
	}
	return check.Policy{
		Node: c.NodeName, Rules: rules, Otherwise: otherwise, Suppressed: suppressed, Table: table, Catalogue: xid.Builtin,
		Settle: c.SettleTime, Remember: watch.Remember, Embedded: c.embedded(), EscalateAfter: c.EscalateAfter, UnbridgedPCIe: c.UnbridgedPCIe,
	}, nil
}

func (c Config) embedded() bool { return c.Mode != Remote }

// Target is where DCGM is.
func (c Config) Target() worker.Target {
	if c.embedded() {
		return worker.Target{Embedded: true}
	}
	return worker.Target{Address: c.Address}
}

// WorkerArgument is the first argument of the process that talks to DCGM.
const WorkerArgument = "dcgm-worker"

// Command makes the process that talks to DCGM: this program itself.
func Command() *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", WorkerArgument)
	cmd.Stderr = os.Stderr
	return cmd
}
