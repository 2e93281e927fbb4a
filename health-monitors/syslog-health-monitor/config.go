package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/catalogue"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is the configuration of the monitor.
type Config struct {
	connector.Config

	// Source is kmsg (the kernel's own ring) or journal (systemd's).
	Source string `toml:"source" bounds:"kmsg, journal" flag:"source" usage:"Source of the kernel log: kmsg or journal."`
	// LogPath is the device or folder; empty is the source's usual path. Tests have a
	// device of their own.
	LogPath string `toml:"logPath" flag:"log-path" usage:"Device or journal directory to read. Empty uses /dev/kmsg or /var/log/journal, depending on --source."`
	// Journalctl is the program that reads a journal.
	Journalctl string `toml:"journalctl" bounds:"not empty" flag:"journalctl" usage:"Path or name of the journalctl program, for --source=journal."`
	// MetadataPath is the node's GPU metadata file; it may be missing.
	MetadataPath string `toml:"metadataPath" flag:"metadata-path" usage:"Path of the GPU metadata file of the node."`
	// SettleTime is how long a check must be quiet after a reboot before it is
	// reported healthy.
	SettleTime time.Duration `toml:"settleTime" bounds:"at least 0s" flag:"settle-time" usage:"Time without errors after a reboot before a check is reported as healthy."`
	// LookBack bounds what a first look at the log reports.
	LookBack time.Duration `toml:"lookBack" bounds:"at least 0s" flag:"look-back" usage:"Maximum age of faults that are reported on a node without saved state."`
	// GapStrategy is that of SysLogsGap, which reports lost lines.
	GapStrategy record.Strategy `toml:"gapProcessingStrategy" bounds:"PROCESS, PERSIST_ONLY" flag:"gap-processing-strategy" usage:"Processing strategy of the events that report lost log lines (SysLogsGap): PROCESS or PERSIST_ONLY."`
	// EveryEvent reports each event of a storm.
	EveryEvent bool `toml:"everyEvent" flag:"every-event" usage:"If true, reports every event. If false, reports the first ten events that differ only in their text, then one a minute with the count of the others."`
	// UserLines accepts XID lines that programs wrote into the kernel log.
	UserLines bool `toml:"acceptUserLines" flag:"accept-user-lines" usage:"If true, accepts matching lines that user-space programs wrote to the kernel log. For tests only."`
	// CataloguePath is a file of codes and patterns merged over the built-in ones.
	CataloguePath string `toml:"catalog" flag:"catalog" usage:"TOML file with XIDs, SXIDs and patterns that override or extend the built-in catalog. Empty uses the built-in catalog only."`
	// SysfsRoot is where names of network cards, and the PCI addresses of GPUs, are looked up.
	SysfsRoot string `toml:"sysfsRoot" flag:"sysfs-root" usage:"Path at which sysfs is mounted, used to look up the names of network cards and the PCI addresses of GPUs. Empty disables the lookup."`
	// Cancellations define which XID clears others on its device. Without the key,
	// DefaultCancellations apply. With an empty list, none do.
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
	Config:       connector.Default(Agent, 64),
	Source:       Kmsg,
	Journalctl:   "journalctl",
	MetadataPath: "/var/lib/nvsentinel/gpu_metadata.json",
	SettleTime:   2 * time.Minute,
	LookBack:     24 * time.Hour,
	GapStrategy:  record.PersistOnly,
	SysfsRoot:    "/sys",
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c)}
	if c.Source == "file" {
		problems = append(problems, errors.New("source (--source) \"file\" is no longer supported, because a log file does not prove the author of a line: "+
			"set kmsg (kernel ring buffer) or journal (systemd journal), and remove logKernelOnly (--log-kernel-only)"))
	}
	if _, err := catalogue.Load(c.CataloguePath); err != nil {
		problems = append(problems, fmt.Errorf("catalog (--catalog): %w", err))
	}
	return errors.Join(append(problems, c.checkCancellations()...)...)
}

func (c Config) checkCancellations() (problems []error) {
	seen := map[string]bool{}
	for i, x := range c.Cancellations {
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("cancellations[%d]."+format, append([]any{i}, args...)...))
		}
		if !errorCode.MatchString(x.OnErrorCode) {
			wrong("onErrorCode %q is not an error code", x.OnErrorCode)
		}
		if seen[x.OnErrorCode] {
			wrong("onErrorCode %q is a duplicate", x.OnErrorCode)
		}
		seen[x.OnErrorCode] = true
		if len(x.CancelErrorCodes) == 0 {
			wrong("cancelErrorCodes is empty")
		}
		for j, code := range x.CancelErrorCodes {
			switch {
			case !errorCode.MatchString(code):
				wrong("cancelErrorCodes[%d] %q is not an error code", j, code)
			case code == x.OnErrorCode:
				wrong("cancelErrorCodes[%d] %q is the same as onErrorCode", j, code)
			case slices.Contains(x.CancelErrorCodes[:j], code):
				wrong("cancelErrorCodes[%d] %q is a duplicate", j, code)
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

// Policy returns the policy of the watch; it fails if the catalogue has become unreadable
// since the validation.
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
		Node: c.NodeName, Strategy: c.Strategy, Settle: c.SettleTime, UserLines: c.UserLines, Cancels: cancels,
		EveryEvent: c.EveryEvent, LookBack: c.LookBack, GapStrategy: c.GapStrategy,
		Catalogue: known,
	}
	if c.SysfsRoot != "" {
		p.NIC, p.Interface, p.GPUs = watch.NICNames(c.SysfsRoot), watch.InterfaceNames(c.SysfsRoot), watch.NewGPUPlaces(c.SysfsRoot)
	}
	return p, nil
}

// Agent is the name of this monitor.
const Agent = location.Agent

func or(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}
