package aws

import (
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Region of the instances; empty is what the SDK finds.
	Region string `toml:"region" flag:"region" usage:"region of the instances; empty is that of AWS_REGION, the profile or the instance"`
	// Endpoint replaces EC2's address.
	Endpoint string `toml:"endpoint" flag:"ec2-endpoint" usage:"URL of the EC2 API, for a VPC endpoint; empty is that of the region"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error { return errors.Join(c.Config.Validate(), c.Proof.Validate(Kinds)) }
