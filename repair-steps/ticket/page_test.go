package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/letter"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "ticket", config{Letter: letter.Default(), TerminationLog: "/dev/termination-log"})
}
