package lease_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, lease.Default()) }
