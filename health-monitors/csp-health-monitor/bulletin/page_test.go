package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "csp-health-monitor-bulletin", Config{Config: program.Default()})
}
