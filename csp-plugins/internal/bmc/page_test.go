package bmc_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) {
	reference.Block(t, bmc.DefaultConfig())
	reference.Block(t, bmc.Entry{})
}
