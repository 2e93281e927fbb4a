package cloud_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) {
	reference.Block(t, cloud.Default())
	reference.Block(t, cloud.Default().Server)
	reference.Block(t, cloud.Proof{})
}
