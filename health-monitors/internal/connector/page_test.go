package connector_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, connector.Default("MONITOR", 64)) }
