package config

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) {
	gateway, cluster := Default(), Default()
	gateway.Role, cluster.Role = RoleGateway, RoleCluster
	reference.Page(t, "platform-connectors", Default(), gateway, cluster)
}
