package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                                func(*Config) {},
		"node-name":                       func(c *Config) { c.NodeName = "" },
		"dcgm-mode":                       func(c *Config) { c.Mode = "auto" },
		"dcgm-addr":                       func(c *Config) { c.Address = "" },
		"poll-interval":                   func(c *Config) { c.PollInterval = time.Millisecond },
		"call-deadline":                   func(c *Config) { c.CallDeadline = time.Second },
		"reconnect-backoff":               func(c *Config) { c.ReconnectPause = 0 },
		"settle-time":                     func(c *Config) { c.SettleTime = -1 },
		"escalation-threshold":            func(c *Config) { c.EscalateAfter = -1 },
		"outbox-mib":                      func(c *Config) { c.OutboxMiB = 0 },
		"PERSIST_ONLY":                    func(c *Config) { c.Strategy = "persist" },
		"error mapping":                   func(c *Config) { c.ErrorMapping = "/nonexistent" },
		"checks.GpuX is not a check":      func(c *Config) { c.Checks = map[string]Check{"GpuX": {}} },
		"checks.GpuMemWatch: raise":       func(c *Config) { c.Checks = map[string]Check{"GpuMemWatch": {Raise: []int{3, 2}}} },
		"GpuMemWatch: for -1s":            func(c *Config) { c.Checks = map[string]Check{"GpuMemWatch": {For: new(-time.Second)}} },
		"clear is not of the form [k, n]": func(c *Config) { c.Checks = map[string]Check{"GpuMemWatch": {Clear: []int{3}}} },
		"GpuMemWatch: processingStrat":    func(c *Config) { c.Checks = map[string]Check{"GpuMemWatch": {Strategy: "x"}} },
	} {
		c := Default
		c.NodeName = "n1"
		change(&c)
		err := c.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestPolicy(t *testing.T) {
	c := Default
	c.NodeName, c.Strategy = "n1", "PERSIST_ONLY"
	c.Checks = map[string]Check{"GpuMemWatch": {Strategy: "PROCESS", Raise: []int{2, 3}}}
	p, err := c.Policy()
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Rules["GpuMemWatch"]; r.Strategy != record.Process || r.Raise != (check.Share{K: 2, N: 3}) || r.Clear != (check.Share{K: 3, N: 3}) {
		t.Errorf("GpuMemWatch: %+v", r)
	}
	if p.Otherwise.Strategy != record.PersistOnly || p.Embedded {
		t.Errorf("%+v", p.Otherwise)
	}
}
