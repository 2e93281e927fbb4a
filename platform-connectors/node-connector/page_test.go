package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "node-connector", config{Config: nodeconnector.Default(), Gateway: upstream.Default()})
}
