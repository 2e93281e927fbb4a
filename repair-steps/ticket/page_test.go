package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/letter"
)

func TestConfigurationPage(t *testing.T) {
	defaults := config{Letter: letter.Default(), TerminationLog: "/dev/termination-log"}
	sent := defaults
	sent.Letter.URL = "https://tickets.example"
	reference.Page(t, "ticket", defaults, sent)
}
