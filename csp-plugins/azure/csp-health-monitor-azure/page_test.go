package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/config"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "csp-health-monitor-azure", Config{Config: config.Default()})
}
