package storeopen_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func TestConfigurationBlock(t *testing.T) { reference.Block(t, storeopen.Location{}) }
