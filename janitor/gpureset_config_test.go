package janitor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/janitor/internal/gpureset"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// resets is a configuration that resets GPUs.
func resets(change func(*GPUReset)) Config {
	return with(func(c *Config) {
		c.GPUReset.Enabled, c.GPUReset.ResetJob.Image = true, "example.com/gpu-reset:1"
		change(&c.GPUReset)
	})
}

func TestResetDefaults(t *testing.T) {
	if defaultConfig().GPUReset.Enabled {
		t.Error("GPUs are reset by default")
	}
	c := resets(func(*GPUReset) {})
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	policy := reset.Policy{
		Policy:          repair.Policy{Timeout: 25 * time.Minute, Poll: 15 * time.Second, TTL: 336 * time.Hour},
		TeardownTimeout: 5 * time.Minute, RestoreTimeout: 10 * time.Minute, JobTimeout: 5 * time.Minute,
	}
	if diff := cmp.Diff(policy, c.resetPolicy()); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	tool := gpureset.Tool{Namespace: "nvsentinel", Image: "example.com/gpu-reset:1", DriverRoot: "/run/nvidia/driver", Deadline: 5 * time.Minute}
	if diff := cmp.Diff(tool, c.resetTool()); diff != "" {
		t.Errorf("tool (-want +got):\n%s", diff)
	}
}

// A plugin is for the other kinds: GPUs are reset without one.
func TestResetNeedsNoPlugin(t *testing.T) {
	c := resets(func(*GPUReset) {})
	c.Global.CSPPluginHost, c.RebootNode.Enabled, c.TerminateNode.Enabled = "", false, false
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestResetConfigurationIsChecked(t *testing.T) {
	for want, change := range map[string]func(*GPUReset){
		"gpuResetController.resetJob.image is empty":                           func(c *GPUReset) { c.ResetJob.Image = "" },
		`gpuResetController.serviceManager.name is "mine"`:                     func(c *GPUReset) { c.ServiceManager.Name = "mine" },
		"gpuResetController.serviceManager.namespace is empty":                 func(c *GPUReset) { c.ServiceManager.Namespace = "" },
		`gpuResetController.resetJob.driverRoot is "run"`:                      func(c *GPUReset) { c.ResetJob.DriverRoot = "run" },
		`gpuResetController.resetJob.driverRoot is "/run/../.."`:               func(c *GPUReset) { c.ResetJob.DriverRoot = "/run/../.." },
		"gpuResetController.resetJob.timeout is 1ms":                           func(c *GPUReset) { c.ResetJob.Timeout = time.Millisecond },
		"gpuResetController.serviceManager.teardownTimeout is 0s":              func(c *GPUReset) { c.ServiceManager.TeardownTimeout = 0 },
		"gpuResetController.serviceManager.restoreTimeout is -1m0s":            func(c *GPUReset) { c.ServiceManager.RestoreTimeout = -time.Minute },
		"gpuResetController.timeout or global.timeout is -1m0s":                func(c *GPUReset) { c.Timeout = -time.Minute },
		"gpuResetController.nodes.exclusions: an empty selector would exclude": func(c *GPUReset) { c.Nodes.Exclusions = []string{""} },
	} {
		if err := resets(change).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
