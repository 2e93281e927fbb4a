package main

import (
	"testing"

	conf "github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/collector"
)

func TestConfigurationPage(t *testing.T) {
	defaults := settings{Collector: collector.Default(), Storage: DefaultStorage(), TerminationLog: "/dev/termination-log"}
	sent, kept := defaults, defaults
	sent.Storage.UploadURL, kept.Storage.KeepDir = conf.NewSecret("https://logs.example"), "/archives"
	reference.Page(t, "log-collector", defaults, sent, kept)
}
