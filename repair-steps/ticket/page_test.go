package main

import (
	"testing"

	conf "github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/ticket"
)

func TestConfigurationPage(t *testing.T) {
	defaults := config{Ticket: ticket.Default(), TerminationLog: "/dev/termination-log"}
	sent := defaults
	sent.Ticket.URL = conf.NewSecret("https://tickets.example")
	reference.Page(t, "ticket", defaults, sent)
}
