package bmc

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/config"
)

// nodePrefix begins the name of a machine, which ends with its Node's.
const nodePrefix = "node://"

// MaxEntries bounds the BMCs of one plugin.
const MaxEntries = 10_000

// Entry is a [[bmc]] of the configuration: which BMC belongs to which node.
type Entry struct {
	_ struct{} `block:"BMC" usage:"Settings of one BMC and its machine. The table [defaults] holds the values for every BMC that does not set its own"`

	// Node is the name of the machine's Node.
	Node string `toml:"node"`
	// ProviderID is refused: the kubelet writes its own Node's providerID, so it proves
	// nothing. Set node.
	ProviderID string `toml:"providerID"`
	// Address of the BMC.
	Address string `toml:"address"`
	// Credentials is a folder with the files username and password, as a Secret of
	// type kubernetes.io/basic-auth is mounted. They are read for every call.
	Credentials string `toml:"credentials"`
	// Reset lists the reset types in order of preference. The first one that the machine
	// supports is used.
	Reset []string `toml:"resetTypes"`
	// PowerOn switches a machine on that is off when it is to be rebooted;
	// otherwise that waits, because somebody may work on it.
	PowerOn bool `toml:"powerOn"`
	// SkipUUIDCheck takes the configuration's word that the BMC is the node's.
	SkipUUIDCheck bool `toml:"skipUUIDCheck"`
}

// Machine names the machine.
func (e Entry) Machine() string { return nodePrefix + e.Node }

// Over fills what an entry leaves out with what stands in defaults.
func (e Entry) Over(defaults Entry) Entry {
	if e.Credentials == "" {
		e.Credentials = defaults.Credentials
	}
	if len(e.Reset) == 0 {
		e.Reset = defaults.Reset
	}
	e.PowerOn = e.PowerOn || defaults.PowerOn
	return e
}

// Config is what every plugin of BMCs needs besides its entries.
type Config struct {
	_ struct{} `block:"BMC checks" usage:"Periodic checks of the BMCs by a plugin"`

	cloud.Config
	// CheckEvery is the time between two checks of all BMCs.
	CheckEvery time.Duration `toml:"checkInterval" bounds:"at least 10s" flag:"check-interval" usage:"Interval between two checks that the BMCs respond and accept the credentials."`
	// ChecksAtOnce is how many BMCs are checked at the same time.
	ChecksAtOnce int `toml:"maxConcurrentChecks" bounds:"1 to 256" flag:"max-concurrent-checks" usage:"Maximum number of BMCs that are checked concurrently."`
}

// DefaultConfig is the configuration without a file.
func DefaultConfig() Config {
	return Config{Config: cloud.Default(), CheckEvery: 5 * time.Minute, ChecksAtOnce: 32}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error { return errors.Join(config.CheckBounds(c), c.Config.Validate()) }

// ValidateDefaults refuses in [defaults] what only a single BMC can have.
func ValidateDefaults(e Entry) error {
	if e.Node != "" || e.ProviderID != "" || e.Address != "" || e.SkipUUIDCheck {
		return errors.New("[defaults]: node, providerID, address and skipUUIDCheck are set only in a [[bmc]]")
	}
	return nil
}

// ValidateEntries joins everything that is wrong with entries, which may be reset
// in the named ways.
func ValidateEntries(entries []Entry, resets []string) error {
	switch {
	case len(entries) == 0:
		return errors.New("[[bmc]] is missing: add one for each machine, with node, address and credentials")
	case len(entries) > MaxEntries:
		return fmt.Errorf("there are %d [[bmc]], at most %d are allowed: run another plugin for the others", len(entries), MaxEntries)
	}
	var problems []error
	machines := map[string]int{}
	for i, e := range entries {
		problem := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("bmc[%d] (%s): "+format, append([]any{i, e.Machine()}, args...)...))
		}
		e.validate(problem, resets)
		if first, twice := machines[e.Machine()]; twice {
			problem("bmc[%d] is for the same machine: configure one [[bmc]] per machine", first)
		}
		machines[e.Machine()] = i
	}
	return errors.Join(problems...)
}

func (e Entry) validate(problem func(format string, args ...any), resets []string) {
	if e.Node == "" || strings.Contains(e.Node, "\n") {
		problem(`node = %q must be the Node name of the machine`, e.Node)
	}
	if e.ProviderID != "" {
		problem(`providerID = %q is not a verification, because the kubelet of the Node writes it: use only node = "NAME"`, e.ProviderID)
	}
	if !filepath.IsAbs(e.Credentials) {
		problem(`credentials = %q must be the absolute path of a directory with the files username and password`, e.Credentials)
	}
	if len(e.Reset) == 0 {
		problem("resetTypes is empty: set one or more of %s", strings.Join(resets, ", "))
	}
	for _, way := range e.Reset {
		if !slices.Contains(resets, way) {
			problem("resetTypes has %q: use %s", way, strings.Join(resets, ", "))
		}
	}
}

// maxCredential bounds a user name and a password, in bytes.
const maxCredential = 512

// Credentials are what a BMC knows its caller by.
type Credentials struct{ Username, Password string }

// ReadCredentials reads the files of a folder; a line's end at the end of a file
// does not belong to what stands in it.
func ReadCredentials(folder string) (Credentials, error) {
	var c Credentials
	for name, value := range map[string]*string{"username": &c.Username, "password": &c.Password} {
		path := filepath.Join(folder, name)
		text, err := config.ReadSecret(path)
		if err != nil {
			return Credentials{}, fmt.Errorf("reading credentials: %w", err)
		}
		if len(text) > maxCredential {
			return Credentials{}, fmt.Errorf("reading credentials: %s has %d bytes, at most %d are allowed", path, len(text), maxCredential)
		}
		*value = text
	}
	return c, nil
}
