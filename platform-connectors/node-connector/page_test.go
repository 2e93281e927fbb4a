package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

func TestConfigurationPage(t *testing.T) {
	reference.Page(t, "node-connector", nodeconnector.Default())
}
