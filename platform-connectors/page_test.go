package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) {
	gateway, cluster := defaultConfig(), defaultConfig()
	gateway.Role, cluster.Role = roleGateway, roleCluster
	reference.Page(t, "platform-connectors", defaultConfig(), gateway, cluster)
}
