package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "csp-health-monitor-azure", Config{Config: program.Default()})
}
