package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/evaluation"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/sysfs"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Agent is the name of this monitor.
const Agent = evaluation.Agent

// Config is the configuration of the monitor.
type Config struct {
	connector.Config

	// SysfsRoot is where sysfs is mounted.
	SysfsRoot string `toml:"sysfsRoot" bounds:"not empty" flag:"sysfs-root" usage:"Path at which the sysfs of the node is mounted."`
	// RoutesPath is a folder with the node's routes.
	RoutesPath string `toml:"routesPath" flag:"routes-path" usage:"Directory with the files route and ipv6_route of the node. Network cards with a default route are not monitored. Empty monitors them too."`
	// Include and Exclude choose cards by name.
	Include string `toml:"includeDevices" flag:"include-devices" usage:"Regular expression of the network cards to monitor, regardless of their routes. Empty monitors all cards without a default route."`
	Exclude string `toml:"excludeDevices" flag:"exclude-devices" usage:"Regular expression of the network cards to ignore. Empty ignores none."`
	// Interval is the time between two polls.
	Interval time.Duration `toml:"pollInterval" bounds:"at least 100ms" flag:"poll-interval" usage:"Interval between two polls."`
	// ConsecutivePolls and Persist define when a state is accepted.
	ConsecutivePolls int           `toml:"consecutivePolls" bounds:"at least 1" flag:"consecutive-polls" usage:"Number of consecutive polls with the same result before a state is accepted."`
	Persist          time.Duration `toml:"persistTime" bounds:"at least 0s" flag:"persist-time" usage:"Time that a link must be down, or a card missing, before a fault is reported."`
	// Steady is when a fault of state is over.
	Steady time.Duration `toml:"steadyTime" bounds:"at least 0s" flag:"steady-time" usage:"Time that a link or card must be healthy before the recovery is reported."`
	// Reload is for updates of the driver.
	Reload time.Duration `toml:"driverReloadTimeout" bounds:"at least 0s" flag:"driver-reload-timeout" usage:"Time that all cards of a driver may be missing at once while the driver reloads."`
	// Settle is for links that come up.
	Settle time.Duration `toml:"settleTime" bounds:"at least 0s" flag:"settle-time" usage:"Time after the first poll of a boot, or after a driver returns, during which no link or card faults are reported."`
	// QuietTime is for counters.
	QuietTime time.Duration `toml:"quietTime" bounds:"at least 0s" flag:"quiet-time" usage:"Time that a non-fatal counter must stay within its threshold before its fault recovers."`
	// Counters are rules in place of the built-in ones of the same code.
	Counters []Counter `toml:"counters"`
}

// Counter is the rule of one error counter.
type Counter struct {
	// Code is the error code of its fault; empty is the counter's name.
	Code string `toml:"code"`
	// Counter is the name of its file.
	Counter string `toml:"counter"`
	// Over is the threshold: a higher growth within Window is a fault. With a Window of 0,
	// the growth since the first poll of the boot counts.
	Over   uint64        `toml:"threshold"`
	Window time.Duration `toml:"window" bounds:"at least 0s"`
	// Fatal makes the fault fatal.
	Fatal bool `toml:"fatal"`
	// Action is the recommended one: NONE by default, REPLACE_VM if fatal.
	Action string `toml:"action"`
	// Off disables the built-in rule of the same code.
	Off bool `toml:"disabled"`
}

// Default is the configuration of a node without special wishes.
var Default = Config{
	Config:           connector.Default(Agent, 16),
	SysfsRoot:        "/sys",
	RoutesPath:       "/proc/1/net",
	Interval:         time.Second,
	ConsecutivePolls: 3,
	Persist:          30 * time.Second,
	Steady:           2 * time.Minute,
	Reload:           15 * time.Minute,
	Settle:           2 * time.Minute,
	QuietTime:        10 * time.Minute,
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c)}
	if _, err := regexp.Compile(c.Include); err != nil {
		problems = append(problems, fmt.Errorf("includeDevices (--include-devices): %w", err))
	}
	if _, err := regexp.Compile(c.Exclude); err != nil {
		problems = append(problems, fmt.Errorf("excludeDevices (--exclude-devices): %w", err))
	}
	return errors.Join(append(problems, c.checkCounters()...)...)
}

// counterName is what files of counters are called.
var counterName = regexp.MustCompile(`^[a-zA-Z0-9_]{1,64}$`)

func (c Config) checkCounters() (problems []error) {
	seen := map[string]bool{}
	for i, x := range c.Counters {
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("counters[%d]."+format, append([]any{i}, args...)...))
		}
		code := x.code()
		if !counterName.MatchString(x.Counter) {
			wrong("counter %q is not the name of a counter", x.Counter)
		}
		if !counterName.MatchString(code) {
			wrong("code %q must consist of letters, digits and _", code)
		}
		if seen[code] {
			wrong("code %q is a duplicate", code)
		}
		seen[code] = true
		if x.Window < 0 {
			wrong("window %s is negative", x.Window)
		}
		if _, err := record.ParseAction(x.action()); err != nil {
			wrong("action: %w", err)
		}
	}
	return problems
}

func (x Counter) code() string {
	if x.Code == "" {
		return x.Counter
	}
	return x.Code
}

func (x Counter) action() string {
	switch {
	case x.Action != "":
		return x.Action
	case x.Fatal:
		return string(record.ActionReplaceVM)
	}
	return string(record.ActionNone)
}

// rules are the built-in counters with those of the file over them.
func (c Config) rules() ([]evaluation.Counter, error) {
	out := evaluation.Counters()
	for _, x := range c.Counters {
		out = slices.DeleteFunc(out, func(r evaluation.Counter) bool { return r.Code == x.code() })
		if x.Off {
			continue
		}
		action, err := record.ParseAction(x.action())
		if err != nil {
			return nil, fmt.Errorf("reading the rule of counter %s: %w", x.Counter, err)
		}
		out = append(out, evaluation.Counter{Code: x.code(), Name: x.Counter, Over: x.Over, Window: x.Window, Fatal: x.Fatal, Action: action})
	}
	return out, nil
}

// Policy returns the configuration of the evaluation.
func (c Config) Policy() (evaluation.Policy, error) {
	counters, err := c.rules()
	return evaluation.Policy{
		Strategy: c.Strategy, ConsecutivePolls: c.ConsecutivePolls, Persist: c.Persist, Reload: c.Reload, Steady: c.Steady,
		Settle: c.Settle, QuietTime: c.QuietTime, Counters: counters,
	}, err
}

// Tree is what is looked at.
func (c Config) Tree(counters []evaluation.Counter) (*sysfs.Tree, error) {
	t := &sysfs.Tree{Root: c.SysfsRoot, Routes: c.RoutesPath}
	for _, r := range counters {
		if !slices.Contains(t.Counters, r.Name) {
			t.Counters = append(t.Counters, r.Name)
		}
	}
	for _, x := range []struct {
		text string
		into **regexp.Regexp
	}{{c.Include, &t.Include}, {c.Exclude, &t.Exclude}} {
		if x.text == "" {
			continue
		}
		re, err := regexp.Compile(x.text)
		if err != nil {
			return nil, fmt.Errorf("reading the device selection: %w", err)
		}
		*x.into = re
	}
	return t, nil
}
