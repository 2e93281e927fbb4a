package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/depot"
	"github.com/nvidia/nvsentinel/repair-steps/internal/harvest"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "log-collector", config{Harvest: harvest.Default(), Depot: depot.Default(), TerminationLog: "/dev/termination-log"})
}
