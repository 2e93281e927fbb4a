package eviction_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, eviction.Default()) }
