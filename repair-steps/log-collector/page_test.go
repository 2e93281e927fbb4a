package main

import (
	"testing"

	conf "github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/repair-steps/internal/collector"
	"github.com/nvidia/nvsentinel/repair-steps/internal/storage"
)

func TestConfigurationPage(t *testing.T) {
	defaults := config{Collector: collector.Default(), Storage: storage.Default(), TerminationLog: "/dev/termination-log"}
	sent, kept := defaults, defaults
	sent.Storage.UploadURL, kept.Storage.KeepDir = conf.NewSecret("https://logs.example"), "/archives"
	reference.Page(t, "log-collector", defaults, sent, kept)
}
