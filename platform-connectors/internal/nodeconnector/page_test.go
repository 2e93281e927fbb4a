package nodeconnector_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, nodeconnector.DefaultShared()) }
