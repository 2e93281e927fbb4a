package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// Config is the configuration of the plugin.
type Config struct {
	bmc.Config
	// Defaults hold for each BMC that does not state otherwise.
	Defaults BMC `toml:"defaults"`
	// BMCs are the machines.
	BMCs []BMC `toml:"bmc"`
}

// BMC is one management controller and the machine behind it.
type BMC struct {
	bmc.Entry
	// System is the id of the machine's ComputerSystem; empty is the only one.
	System string `toml:"system"`
	// CAFile is a PEM file with the authorities of the BMC's certificate; empty are
	// those of the operating system.
	CAFile string `toml:"caFile"`
	// Pin is the SHA-256 of the BMC's certificate in hexadecimal digits. Only a
	// certificate with this digest is accepted, and no signature is verified.
	Pin string `toml:"pin"`
	// ServerName is the name in the BMC's certificate; empty is the address.
	ServerName string `toml:"serverName"`
	// Session logs in and out for every call, for BMCs that refuse basic
	// authentication.
	Session bool `toml:"session"`
}

// Default is the configuration without a file; it lacks the BMCs.
func Default() Config {
	return Config{Config: bmc.DefaultConfig(), Defaults: BMC{Entry: bmc.Entry{Reset: []string{ForceRestart, PowerCycle, GracefulRestart}}}}
}

// All returns the BMCs, with the defaults filled in.
func (c Config) All() []BMC {
	all := make([]BMC, 0, len(c.BMCs))
	for _, b := range c.BMCs {
		b.Entry = b.Over(c.Defaults.Entry)
		if b.CAFile == "" && b.Pin == "" {
			b.CAFile = c.Defaults.CAFile
		}
		b.Session = b.Session || c.Defaults.Session
		all = append(all, b)
	}
	return all
}

// Entries are the BMCs as far as they are alike in all protocols.
func (c Config) Entries() []bmc.Entry {
	var entries []bmc.Entry
	for _, b := range c.All() {
		entries = append(entries, b.Entry)
	}
	return entries
}

var (
	pinForm    = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	systemForm = regexp.MustCompile(`^[A-Za-z0-9._~:@()+-]{1,128}$`)
)

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), bmc.ValidateDefaults(c.Defaults.Entry), bmc.ValidateEntries(c.Entries(), resetTypes)}
	if c.Defaults.System != "" || c.Defaults.Pin != "" || c.Defaults.ServerName != "" {
		problems = append(problems, errors.New("[defaults]: system, pin and serverName are set only in a [[bmc]]"))
	}
	systems := map[string]int{}
	for i, b := range c.All() {
		found := b.problems()
		where := b.Address + " " + b.System
		if first, twice := systems[where]; twice {
			found = append(found, fmt.Sprintf("bmc[%d] has the same address and system: use those of another machine", first))
		}
		systems[where] = i
		for _, text := range found {
			problems = append(problems, fmt.Errorf("bmc[%d] (%s): %s", i, b.Machine(), text))
		}
	}
	return errors.Join(problems...)
}

// problems are those of what only Redfish has.
func (b BMC) problems() []string {
	var found []string
	u, err := url.Parse(b.Address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		found = append(found, fmt.Sprintf("address = %q must be https://HOST or https://HOST:PORT", b.Address))
	}
	if b.System != "" && !systemForm.MatchString(b.System) {
		found = append(found, fmt.Sprintf("system = %q must be the ID of a member of /redfish/v1/Systems, such as System.Embedded.1", b.System))
	}
	if b.Pin != "" && !pinForm.MatchString(b.Pin) {
		found = append(found, fmt.Sprintf("pin = %q must have 64 hexadecimal digits: openssl x509 -noout -fingerprint -sha256, without colons", b.Pin))
	}
	if b.CAFile != "" && !filepath.IsAbs(b.CAFile) {
		found = append(found, fmt.Sprintf("caFile = %q must be the absolute path of a PEM file", b.CAFile))
	}
	if b.Pin != "" && (b.CAFile != "" || b.ServerName != "") {
		found = append(found, "pin excludes caFile and serverName")
	}
	return found
}
