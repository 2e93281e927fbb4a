package daemon

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationIndex(t *testing.T) { reference.Index(t, defaultOptions(nil)) }
