package cloud

import (
	"errors"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// Config is what every plugin of a cloud has to be told.
type Config struct {
	// Listen is the host:port or unix:///path the janitor calls.
	Listen string `toml:"listen" flag:"listen" usage:"host:port or unix:///path that the janitor calls"`
	// Namespace is the plugin's own, where it remembers keys.
	Namespace string `toml:"namespace" flag:"namespace" usage:"namespace of the ConfigMaps in which the plugin remembers which keys it executed"`

	// CertFile, KeyFile and ClientCAFile make the plugin speak TLS.
	CertFile     string `toml:"certFile" flag:"tls-cert-file" usage:"PEM file of the plugin's certificate, read again for every connection"`
	KeyFile      string `toml:"keyFile" flag:"tls-key-file" usage:"PEM file of the key of the plugin's certificate"`
	ClientCAFile string `toml:"clientCAFile" flag:"tls-client-ca-file" usage:"PEM file of the authorities of the callers' certificates; empty asks for none"`
	// Plaintext gives up TLS.
	Plaintext bool `toml:"plaintext" flag:"plaintext" usage:"speak without TLS, for a Unix socket or a loopback address"`
	// Audience and Callers make the plugin verify its callers.
	Audience string   `toml:"audience" flag:"audience" usage:"audience that the callers' service-account tokens must be meant for"`
	Callers  []string `toml:"callers" flag:"callers" usage:"identities that may call, for example system:serviceaccount:nvsentinel:janitor"`
	// Anyone admits callers without a token.
	Anyone bool `toml:"anyone" flag:"admit-anyone" usage:"admit callers without a token; for a Unix socket that only the janitor can open"`

	Kube kube.Config `toml:"kube"`
}

// Default is the configuration without a file; it lacks certificates.
func Default() Config {
	return Config{
		Listen: ":9090", Namespace: "nvsentinel",
		Audience: "csp-plugin", Callers: []string{"system:serviceaccount:nvsentinel:janitor"},
	}
}

// Validate joins everything that is wrong. A plugin that can destroy machines
// speaks TLS and knows its callers unless it is told otherwise.
func (c Config) Validate() error {
	problems := []error{c.Kube.Validate()}
	if c.Listen == "" {
		problems = append(problems, errors.New("listen (--listen) is empty"))
	}
	if c.Namespace == "" {
		problems = append(problems, errors.New("namespace (--namespace) is empty"))
	}
	if (c.CertFile == "") != (c.KeyFile == "") || c.ClientCAFile != "" && c.CertFile == "" {
		problems = append(problems, errors.New("certFile (--tls-cert-file) and keyFile (--tls-key-file) belong together, and clientCAFile (--tls-client-ca-file) needs them"))
	}
	if (c.CertFile == "") != c.Plaintext {
		problems = append(problems, errors.New("either certFile (--tls-cert-file) or plaintext (--plaintext) must be set"))
	}
	if (c.Audience == "" || len(c.Callers) == 0) && !c.Anyone {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) must be set, or anyone (--admit-anyone)"))
	}
	return errors.Join(problems...)
}
