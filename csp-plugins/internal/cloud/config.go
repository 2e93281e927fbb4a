package cloud

import (
	"errors"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/callers"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Config is what every plugin of a cloud has to be told.
type Config struct {
	_ struct{} `block:"Provider plugin" usage:"What every plugin that can destroy machines is told besides: it speaks TLS and knows its callers unless it is told otherwise"`

	callers.Serving
	// Namespace is the plugin's own, where it remembers keys.
	Namespace string `toml:"namespace" flag:"namespace" usage:"namespace of the ConfigMaps in which the plugin remembers which keys it executed"`
	// Plaintext gives up TLS.
	Plaintext bool `toml:"plaintext" flag:"plaintext" usage:"speak without TLS, for a Unix socket or a loopback address"`
	// Anyone admits callers without a token.
	Anyone bool `toml:"anyone" flag:"admit-anyone" usage:"admit callers without a token; for a Unix socket that only the janitor can open"`

	Kube kube.Config `toml:"kube"`
}

// Default is the configuration without a file; it lacks certificates.
func Default() Config { return Config{Serving: callers.Default(), Namespace: "nvsentinel"} }

// Validate joins everything that is wrong. A plugin that can destroy machines
// speaks TLS and knows its callers unless it is told otherwise.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate(), c.Serving.Validate()}
	if c.Namespace == "" {
		problems = append(problems, errors.New("namespace (--namespace) is empty"))
	}
	if (c.CertFile == "") != c.Plaintext {
		problems = append(problems, errors.New("either certFile (--tls-cert-file) or plaintext (--plaintext) must be set"))
	}
	if (c.Audience == "" || len(c.Callers) == 0) && !c.Anyone {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) must be set, or anyone (--admit-anyone)"))
	}
	return errors.Join(problems...)
}
