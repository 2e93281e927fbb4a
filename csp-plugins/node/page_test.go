package main

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationPage(t *testing.T) { reference.Page(t, "csp-plugin-node", Default()) }
