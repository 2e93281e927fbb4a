package oci

import (
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Ways in which the plugin proves who it is.
const (
	// Workload is the identity of the pod's service account on an OKE cluster.
	Workload = "workload-identity"
	// Instance is the identity of the instance that the plugin runs on.
	Instance = "instance-principal"
	// File is a configuration file of the OCI command line, with an API key.
	File = "config-file"
)

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Auth is one of the ways above.
	Auth string `toml:"auth" flag:"auth" usage:"how the plugin proves who it is: workload-identity (OKE), instance-principal or config-file"`
	// ConfigFile and Profile are for config-file.
	ConfigFile string `toml:"configFile" flag:"oci-config-file" usage:"configuration file of the OCI command line, for --auth=config-file; its key_file is read as well"`
	Profile    string `toml:"profile" flag:"oci-profile" usage:"profile of the configuration file"`
	// Endpoint replaces the address of the APIs.
	Endpoint string `toml:"endpoint" flag:"oci-endpoint" usage:"URL that serves the Core Services and Work Requests APIs; empty is those of the region"`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}, Auth: Workload, Profile: "DEFAULT"}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), c.Proof.Validate(Kinds)}
	switch c.Auth {
	case Workload, Instance:
	case File:
		if c.ConfigFile == "" {
			problems = append(problems, errors.New("configFile (--oci-config-file) is empty, and auth (--auth) is config-file"))
		}
	default:
		problems = append(problems, fmt.Errorf("auth (--auth) is %q, want %s, %s or %s", c.Auth, Workload, Instance, File))
	}
	return errors.Join(problems...)
}
