package main

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

func TestConfig(t *testing.T) {
	valid := func() Config {
		c := Default()
		c.Plaintext = true
		c.Defaults.Credentials = "/etc/bmc"
		c.BMCs = []BMC{{Entry: bmc.Entry{Node: "gpu-1", Address: "https://10.0.0.1"}}, {Entry: bmc.Entry{Node: "gpu-2", Address: "https://10.0.0.2:8443"}}}
		return c
	}
	if err := valid().Validate(); err != nil {
		t.Fatalf("valid: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"--tls-cert-file":                        func(c *Config) { c.Plaintext = false },
		"[[bmc]] is missing":                     func(c *Config) { c.BMCs = nil },
		`bmc[0] (node://gpu-1): address = "10.`:  func(c *Config) { c.BMCs[0].Address = "10.0.0.1" },
		`must be https://HOST`:                   func(c *Config) { c.BMCs[0].Address = "http://10.0.0.1" },
		`address = "https://10.0.0.1/redfish/v1`: func(c *Config) { c.BMCs[0].Address = "https://10.0.0.1/redfish/v1" },
		"bmc[0] is for the same machine":         func(c *Config) { c.BMCs[1].Node = "gpu-1" },
		"providerID = \"metal://1\"":             func(c *Config) { c.BMCs[0].ProviderID = "metal://1" },
		"absolute path of a directory":           func(c *Config) { c.Defaults.Credentials = "etc" },
		`resetTypes has "Nmi"`:                   func(c *Config) { c.BMCs[0].Reset = []string{"Nmi"} },
		"resetTypes is empty":                    func(c *Config) { c.Defaults.Reset = nil },
		"bmc[0] has the same address":            func(c *Config) { c.BMCs[1].Address = c.BMCs[0].Address },
		"system = ":                              func(c *Config) { c.BMCs[0].System = "../../Managers/1" },
		"64 hexadecimal digits":                  func(c *Config) { c.BMCs[0].Pin = "AB:CD" },
		"pin excludes":                           func(c *Config) { c.BMCs[0].Pin, c.BMCs[0].CAFile = strings.Repeat("ab", 32), "/ca" },
		"caFile = ":                              func(c *Config) { c.BMCs[0].CAFile = "ca" },
		"must be the Node name of the machine":   func(c *Config) { c.BMCs[1].Node = "" },
		"address and skipUUIDCheck are":          func(c *Config) { c.Defaults.SkipUUIDCheck = true },
		"system, pin and serverName are":         func(c *Config) { c.Defaults.System = "1" },
		"checkInterval":                          func(c *Config) { c.CheckEvery = 0 },
		"maxConcurrentChecks":                    func(c *Config) { c.ChecksAtOnce = 1000 },
	} {
		c := valid()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
