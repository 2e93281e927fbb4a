package program_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/program"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, program.Default()) }
