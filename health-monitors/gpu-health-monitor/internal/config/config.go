// Package config holds what an operator can set about the GPU health monitor.
package config

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
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmerror"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/internal/worker"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is the configuration of the monitor.
type Config struct {
	report.Node

	// Mode is remote (a host engine of somebody else's) or embedded (one within this
	// monitor).
	Mode string `toml:"dcgmMode" bounds:"remote, embedded" flag:"dcgm-mode" usage:"remote: a host engine at --dcgm-addr; embedded: one within this monitor"`
	// Address of the host engine.
	Address string `toml:"dcgmAddr" flag:"dcgm-addr" usage:"host:port of the host engine, or unix:// and the path of its socket (mode remote)"`
	// PollInterval is how often DCGM is looked at.
	PollInterval time.Duration `toml:"pollInterval" bounds:"at least 1s" flag:"poll-interval" usage:"how often DCGM is looked at; each look costs the host engine some milliseconds, and it judges by samples of 30s"`
	// CallDeadline is that of each call of DCGM.
	CallDeadline time.Duration `toml:"callDeadline" bounds:"at least 6s" flag:"call-deadline" usage:"how long one call of DCGM may take before it is given up as hanging"`
	// ReconnectPause is that before another connection after one that failed at once.
	ReconnectPause time.Duration `toml:"reconnectPause" bounds:"at least 1s" flag:"reconnect-pause" usage:"pause before another connection, doubled up to 2m while they fail: the host engine never forgets the watches of one"`
	// SettleTime is for how long what shows a fault has to have recent samples before the
	// fault can end.
	SettleTime time.Duration `toml:"settleTime" bounds:"at least 0s" flag:"settle-time" usage:"for how long each look must have had recent samples of the fields that show a fault, over one connection, before the fault can end"`
	// EscalateAfter restarts a node whose DCGM does not answer.
	EscalateAfter int `toml:"connectivityFailureEscalationThreshold" bounds:"at least 0" flag:"connectivity-failure-escalation-threshold" usage:"after how many failing looks in a row GpuDcgmConnectivityFailure recommends RESTART_BM; 0 never"`
	// ErrorMapping is merged over the built-in table.
	ErrorMapping string `toml:"dcgmErrorMappingConfigFile" flag:"dcgm-error-mapping-config-file" usage:"CSV of name,action that is merged over the built-in table of DCGM's errors; empty has that alone"`
	// Suppressed codes are counted and not told.
	Suppressed []string `toml:"suppressedErrorCodes" flag:"suppressed-error-codes" usage:"codes that are counted and not told, such as DCGM_FR_NVLINK_DOWN"`
	// UnbridgedPCIe suppresses NVLinks that are down on PCIe cards.
	UnbridgedPCIe bool `toml:"suppressNvlinkDownUnbridgedPCIe" flag:"suppress-nvlink-down-unbridged-pcie" usage:"do not tell of NVLinks that are down on PCIe cards of which none is up, by the metadata file"`
	// Checks overrides single checks, by name.
	Checks map[string]Check `toml:"checks"`
	// MetadataPath is the node's GPU metadata file; it may be missing.
	MetadataPath string `toml:"metadataPath" flag:"metadata-path" usage:"GPU metadata file of the node"`
}

// Check is what an operator says of one check; what is empty stays as it is.
type Check struct {
	// Strategy of the check's events: PROCESS or PERSIST_ONLY.
	Strategy string `toml:"processingStrategy" bounds:"PROCESS, PERSIST_ONLY"`
	// Raise and Clear are [k, n]: in k of the last n looks.
	Raise []int `toml:"raise"`
	Clear []int `toml:"clear"`
	// For is how long every look has to show it, besides Raise.
	For *time.Duration `toml:"for" bounds:"at least 0s"`
}

// Modes.
const (
	Remote   = "remote"
	Embedded = "embedded"
)

// Default is the configuration of a node without special wishes.
var Default = Config{
	Mode: Remote, Address: "localhost:5555", PollInterval: 15 * time.Second, CallDeadline: 45 * time.Second, SettleTime: time.Minute,
	ReconnectPause: 5 * time.Second, MetadataPath: "/var/lib/nvsentinel/gpu_metadata.json", Node: report.DefaultNode("gpu-health-monitor"),
}

// Bounds of times.
const (
	leastPoll     = time.Second
	leastPause    = time.Second
	leastDeadline = 6 * time.Second // a connection to nobody takes 5
)

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Node.Validate()}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !slices.Contains([]string{Remote, Embedded}, c.Mode) {
		wrong("dcgmMode (--dcgm-mode) %q is not remote or embedded", c.Mode)
	}
	if c.Address == "" {
		wrong("dcgmAddr (--dcgm-addr) is empty")
	}
	if c.PollInterval < leastPoll {
		wrong("pollInterval (--poll-interval) %s is less than %s", c.PollInterval, leastPoll)
	}
	if c.CallDeadline < leastDeadline {
		wrong("callDeadline (--call-deadline) %s is less than %s: a connection to nobody takes 5s", c.CallDeadline, leastDeadline)
	}
	if c.SettleTime < 0 {
		wrong("settleTime (--settle-time) %s is negative", c.SettleTime)
	}
	if c.ReconnectPause < leastPause {
		wrong("reconnectPause (--reconnect-pause) %s is less than %s", c.ReconnectPause, leastPause)
	}
	if c.EscalateAfter < 0 {
		wrong("connectivityFailureEscalationThreshold (--connectivity-failure-escalation-threshold) %d is negative", c.EscalateAfter)
	}
	if _, err := dcgmerror.Load(c.ErrorMapping); err != nil {
		wrong("dcgmErrorMappingConfigFile (--dcgm-error-mapping-config-file): %w", err)
	}
	if _, _, err := c.rules(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// known are the names of all checks.
func known() []string {
	return append(reading.Checks(), check.Connectivity, check.Unresponsive, check.LostGPU, check.Margin, check.XIDs)
}

// rules are those of the checks: the defaults, with what the operator says.
func (c Config) rules() (rules map[string]check.Rule, otherwise check.Rule, err error) {
	rules, otherwise = check.DefaultRules(record.Strategy(c.Strategy))
	var problems []error
	for name, given := range c.Checks {
		if !slices.Contains(known(), name) {
			problems = append(problems, fmt.Errorf("checks.%s is no check", name))
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

// over is a rule with what is said of it.
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
			return rule, fmt.Errorf("%s is not [k, n]", x.name)
		}
		*x.to = check.Share{K: x.given[0], N: x.given[1]}
		if err := x.to.Validate(); err != nil {
			return rule, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return rule, nil
}

// Policy is what the decisions are told.
func (c Config) Policy() (check.Policy, error) {
	table, err := dcgmerror.Load(c.ErrorMapping)
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
