package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/front"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "node-connector", config{Config: front.Default(), Gateway: upstream.Default()})
}
