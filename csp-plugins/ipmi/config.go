package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// Ways to reset a machine.
const (
	Reset = "reset"
	Cycle = "cycle"
)

// resetTypes are all that a configuration may name. A shutdown is none: nobody would
// switch the machine on again.
var resetTypes = []string{Reset, Cycle}

// privileges of a session that can reset a machine (IPMI 2.0, appendix G).
var privileges = []string{"OPERATOR", "ADMINISTRATOR"}

// Config is the configuration of the plugin.
type Config struct {
	bmc.Config
	// Program is ipmitool, by its path or by its name in PATH.
	Program string `toml:"ipmitool" flag:"ipmitool" usage:"Path of the ipmitool program, or its name in PATH."`
	// Defaults hold for each BMC that does not state otherwise.
	Defaults BMC `toml:"defaults"`
	// BMCs are the machines.
	BMCs []BMC `toml:"bmc"`
}

// BMC is one management controller and the machine behind it.
type BMC struct {
	bmc.Entry
	// CipherSuite of the session: 17 (SHA-256) or 3 (SHA-1), 0 is that of the defaults.
	CipherSuite int `toml:"cipherSuite"`
	// Privilege of the session: OPERATOR is the least that resets a machine.
	Privilege string `toml:"privilege"`
}

// Default is the configuration without a file; it lacks the BMCs.
func Default() Config {
	return Config{
		Config: bmc.DefaultConfig(), Program: "ipmitool",
		Defaults: BMC{Entry: bmc.Entry{Reset: []string{Reset, Cycle}}, CipherSuite: 17, Privilege: "OPERATOR"},
	}
}

// All returns the BMCs, with the defaults filled in.
func (c Config) All() []BMC {
	all := make([]BMC, 0, len(c.BMCs))
	for _, b := range c.BMCs {
		b.Entry = b.Over(c.Defaults.Entry)
		if b.CipherSuite == 0 {
			b.CipherSuite = c.Defaults.CipherSuite
		}
		if b.Privilege == "" {
			b.Privilege = c.Defaults.Privilege
		}
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

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), bmc.ValidateDefaults(c.Defaults.Entry), bmc.ValidateEntries(c.Entries(), resetTypes)}
	if c.Program == "" {
		problems = append(problems, errors.New("ipmitool (--ipmitool) is empty"))
	}
	addresses := map[string]int{}
	for i, b := range c.All() {
		found := b.problems()
		if first, twice := addresses[b.Address]; twice {
			found = append(found, fmt.Sprintf("bmc[%d] has the same address: use the address of another machine", first))
		}
		addresses[b.Address] = i
		for _, text := range found {
			problems = append(problems, fmt.Errorf("bmc[%d] (%s): %s", i, b.Machine(), text))
		}
	}
	return errors.Join(problems...)
}

// problems are those of what only IPMI has.
func (b BMC) problems() []string {
	var found []string
	if _, _, ok := b.endpoint(); !ok {
		found = append(found, fmt.Sprintf("address = %q must be HOST or HOST:PORT", b.Address))
	}
	if b.CipherSuite != 3 && b.CipherSuite != 17 {
		found = append(found, fmt.Sprintf("cipherSuite = %d must be 17, or 3 for a BMC without SHA-256", b.CipherSuite))
	}
	if !slices.Contains(privileges, b.Privilege) {
		found = append(found, fmt.Sprintf("privilege = %q must be %s", b.Privilege, strings.Join(privileges, " or ")))
	}
	return found
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// rmcpPort is the port of RMCP+ (IPMI 2.0, 13.1.2).
const rmcpPort = "623"

// endpoint is the host and the port of the address.
func (b BMC) endpoint() (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(b.Address)
	if err != nil {
		host, port = strings.Trim(b.Address, "[]"), rmcpPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return host, port, err == nil && number > 0 && (hostForm.MatchString(host) || net.ParseIP(host) != nil)
}
