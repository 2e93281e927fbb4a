package azure

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	csp "github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Config is the configuration of the plugin.
type Config struct {
	csp.Config
	csp.Proof
	// Cloud is one of clouds.
	Cloud string `toml:"cloud" bounds:"public, china, government" flag:"cloud" usage:"which Azure: public, china or government"`
	// Endpoint replaces the address of Azure Resource Manager.
	Endpoint string `toml:"endpoint" flag:"arm-endpoint" usage:"https URL of Azure Resource Manager, for a private cloud; empty is that of --cloud"`
	// Authority says who gives tokens, in a private cloud.
	Authority string `toml:"authority" flag:"authority" usage:"https URL of the authority that gives tokens, for a private cloud; Microsoft is not asked about it. Empty is AZURE_AUTHORITY_HOST, else that of --cloud"`
}

// clouds are Azure's own.
var clouds = map[string]cloud.Configuration{"public": cloud.AzurePublic, "china": cloud.AzureChina, "government": cloud.AzureGovernment}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: csp.Default(), Proof: csp.Proof{NodeNameFrom: Kinds}, Cloud: "public"}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	problems := []error{c.Config.Validate(), c.Proof.Validate(Kinds)}
	if _, ok := clouds[c.Cloud]; !ok {
		problems = append(problems, fmt.Errorf("cloud (--cloud) is %q, want public, china or government", c.Cloud))
	}
	for name, value := range map[string]string{"endpoint (--arm-endpoint)": c.Endpoint, "authority (--authority)": c.Authority} {
		if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			problems = append(problems, fmt.Errorf("%s is %q, want https://HOST", name, value))
		}
	}
	return errors.Join(problems...)
}

// where is the cloud that the configuration means.
func (c Config) where() cloud.Configuration {
	found := clouds[c.Cloud]
	manager := found.Services[cloud.ResourceManager]
	if c.Endpoint != "" {
		manager.Endpoint = c.Endpoint
	}
	authority := c.Authority
	if authority == "" && c.Cloud != "public" {
		authority = found.ActiveDirectoryAuthorityHost // else AZURE_AUTHORITY_HOST has a say
	}
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager},
	}
}
