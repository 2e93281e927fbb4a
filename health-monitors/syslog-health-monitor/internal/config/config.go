// Package config holds what an operator can set about the syslog health monitor.
package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/catalogue"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Config is the configuration of the monitor.
type Config struct {
	report.Node

	// Source is kmsg (the kernel's own ring) or journal (systemd's).
	Source string `toml:"source" bounds:"kmsg, journal" flag:"source" usage:"where the kernel log is read: kmsg or journal"`
	// LogPath is the device or folder; empty is the source's usual path. Tests have a
	// device of their own.
	LogPath string `toml:"logPath" flag:"log-path" usage:"device or journal folder to read (default /dev/kmsg or /var/log/journal)"`
	// Journalctl is the program that reads a journal.
	Journalctl string `toml:"journalctl" flag:"journalctl" usage:"program that reads the journal (source journal)"`
	// MetadataPath is the node's GPU metadata file; it may be missing.
	MetadataPath string `toml:"metadataPath" flag:"metadata-path" usage:"GPU metadata file of the node"`
	// SettleTime is how long a check must be quiet after a reboot before it is
	// reported healthy.
	SettleTime time.Duration `toml:"settleTime" bounds:"at least 0s" flag:"settle-time" usage:"quiet time after a reboot before a check is reported healthy"`
	// LookBack bounds what a first look at the log reports.
	LookBack time.Duration `toml:"lookBack" bounds:"at least 0s" flag:"look-back" usage:"how old a fault may be that is found on a node which no state knows of"`
	// GapStrategy is that of SysLogsGap, which tells of lost lines.
	GapStrategy string `toml:"gapProcessingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"gap-processing-strategy" usage:"strategy of the events that tell of lost lines (SysLogsGap): PROCESS or PERSIST_ONLY"`
	// EveryEvent reports each event of a storm.
	EveryEvent bool `toml:"everyEvent" flag:"every-event" usage:"report every event; else, of those that differ in their text only, ten and then one a minute that counts the others"`
	// UserLines accepts XID lines that programs wrote into the kernel log.
	UserLines bool `toml:"acceptUserLines" flag:"accept-user-lines" usage:"believe lines of interest that programs wrote into the log (for tests)"`
	// CataloguePath is a file of codes and patterns merged over the built-in ones.
	CataloguePath string `toml:"catalogue" flag:"catalogue" usage:"TOML file of XIDs, SXIDs and patterns that are merged over the built-in ones; empty has those alone"`
	// SysfsRoot is where names of network cards, and the PCI addresses of GPUs, are looked up.
	SysfsRoot string `toml:"sysfsRoot" flag:"sysfs-root" usage:"where sysfs is mounted, for the names of network cards and the PCI addresses of GPUs; empty looks none up"`
	// Cancellations say which XID clears others on its device; without the key
	// DefaultCancellations hold, with an empty list none do.
	Cancellations []Cancellation `toml:"cancellations"`
}

// Cancellation is one XID whose report clears others on the same device. Codes
// are error codes as reported: "162", "149.NETIR_LINK_EVT".
type Cancellation struct {
	// OnErrorCode is the XID that clears, CancelErrorCodes are those that it clears.
	OnErrorCode      string   `toml:"onErrorCode"`
	CancelErrorCodes []string `toml:"cancelErrorCodes"`
}

// DefaultCancellations are the rules of the predecessor: XID 162, a notice that
// PSHC is engaged again, clears 163.
var DefaultCancellations = []Cancellation{{"162", []string{"163"}}}

// Sources of the kernel log.
const (
	Kmsg    = "kmsg"
	Journal = "journal"
)

// Default is the configuration of a node without special wishes.
var Default = Config{
	Node:         report.DefaultNode(Agent),
	Source:       Kmsg,
	Journalctl:   "journalctl",
	MetadataPath: "/var/lib/nvsentinel/gpu_metadata.json",
	SettleTime:   2 * time.Minute,
	LookBack:     24 * time.Hour,
	GapStrategy:  string(record.PersistOnly),
	SysfsRoot:    "/sys",
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Node.Validate()}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch c.Source {
	case Kmsg, Journal:
	case "file":
		wrong("source (--source) \"file\" is not supported any more, because a log file does not prove who wrote a line: " +
			"set kmsg (the kernel's ring) or journal (the systemd journal), and remove logKernelOnly (--log-kernel-only)")
	default:
		wrong("source (--source) %q is not kmsg or journal", c.Source)
	}
	if c.Journalctl == "" {
		wrong("journalctl (--journalctl) is empty")
	}
	if c.SettleTime < 0 {
		wrong("settleTime (--settle-time) %s is negative", c.SettleTime)
	}
	if c.LookBack < 0 {
		wrong("lookBack (--look-back) %s is negative", c.LookBack)
	}
	if _, err := record.ParseStrategy(c.GapStrategy); err != nil {
		wrong("gapProcessingStrategy (--gap-processing-strategy): %w", err)
	}
	if _, err := catalogue.Load(c.CataloguePath); err != nil {
		wrong("catalogue (--catalogue): %w", err)
	}
	problems = append(problems, c.checkCancellations()...)
	return errors.Join(problems...)
}

func (c Config) checkCancellations() (problems []error) {
	seen := map[string]bool{}
	for i, x := range c.Cancellations {
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("cancellations[%d]."+format, append([]any{i}, args...)...))
		}
		if !errorCode.MatchString(x.OnErrorCode) {
			wrong("onErrorCode %q is no error code", x.OnErrorCode)
		}
		if seen[x.OnErrorCode] {
			wrong("onErrorCode %q stands twice", x.OnErrorCode)
		}
		seen[x.OnErrorCode] = true
		if len(x.CancelErrorCodes) == 0 {
			wrong("cancelErrorCodes is empty")
		}
		for j, code := range x.CancelErrorCodes {
			switch {
			case !errorCode.MatchString(code):
				wrong("cancelErrorCodes[%d] %q is no error code", j, code)
			case code == x.OnErrorCode:
				wrong("cancelErrorCodes[%d] %q is the code itself", j, code)
			case slices.Contains(x.CancelErrorCodes[:j], code):
				wrong("cancelErrorCodes[%d] %q stands twice", j, code)
			}
		}
	}
	return problems
}

// errorCode is an XID with the unit that NVLink5 registers name, if any.
var errorCode = regexp.MustCompile(`^[1-9]\d{0,8}(\.\w[\w ]{0,63})?$`)

// Log is the source that the configuration names.
type Log interface {
	watch.Source
	Counts() source.Counts
	Close() error
}

// OpenLog makes the source; it opens nothing yet.
func (c Config) OpenLog(clk clock.PassiveClock) Log {
	switch c.Source {
	case Journal:
		return source.NewJournal(c.Journalctl, or(c.LogPath, "/var/log/journal"), clk)
	default:
		return source.NewKmsg(or(c.LogPath, "/dev/kmsg"), clk)
	}
}

// Policy is what the watch is told; it fails if the catalogue has become
// unreadable since the validation.
func (c Config) Policy() (watch.Policy, error) {
	known, err := catalogue.Load(c.CataloguePath)
	if err != nil {
		return watch.Policy{}, err
	}
	rules := c.Cancellations
	if rules == nil {
		rules = DefaultCancellations
	}
	cancels := map[string][]string{}
	for _, rule := range rules {
		cancels[rule.OnErrorCode] = rule.CancelErrorCodes
	}
	p := watch.Policy{
		Node: c.NodeName, Strategy: record.Strategy(c.Strategy), Settle: c.SettleTime, UserLines: c.UserLines, Cancels: cancels,
		EveryEvent: c.EveryEvent, LookBack: c.LookBack, GapStrategy: record.Strategy(c.GapStrategy),
		Catalogue: known,
	}
	if c.SysfsRoot != "" {
		p.NIC, p.Interface, p.GPUs = watch.NICNames(c.SysfsRoot), watch.InterfaceNames(c.SysfsRoot), watch.NewGPUPlaces(c.SysfsRoot)
	}
	return p, nil
}

// Agent is the name of this monitor.
const Agent = sighting.Agent

func or(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}
