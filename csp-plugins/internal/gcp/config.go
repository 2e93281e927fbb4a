package gcp

import (
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Endpoint replaces the address of the Compute Engine API.
	Endpoint string `toml:"endpoint" flag:"compute-endpoint" usage:"URL of the Compute Engine API, for Private Service Connect: scheme and host alone; empty is the public one"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	return errors.Join(c.Config.Validate(), config.CheckOrigin("endpoint (--compute-endpoint)", c.Endpoint), c.Proof.Validate(Kinds))
}
