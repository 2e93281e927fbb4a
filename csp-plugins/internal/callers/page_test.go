package callers_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/callers"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, callers.Default()) }
