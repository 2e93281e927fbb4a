package callers

import "errors"

// Serving is the part of a plugin's configuration that says where it is called, and by
// whom; it is embedded.
type Serving struct {
	_ struct{} `block:"Server of a plugin" usage:"Where the janitor calls a provider plugin, and who may call it ([plugins](../plugins.md))"`
	// Listen is the host:port or unix:///path the janitor calls.
	Listen string `toml:"listen" flag:"listen" usage:"host:port or unix:///path that the janitor calls"`
	// CertFile, KeyFile and ClientCAFile make the plugin speak TLS.
	CertFile     string `toml:"certFile" flag:"tls-cert-file" usage:"PEM file of the plugin's certificate, read again for every connection"`
	KeyFile      string `toml:"keyFile" flag:"tls-key-file" usage:"PEM file of the key of the plugin's certificate"`
	ClientCAFile string `toml:"clientCAFile" flag:"tls-client-ca-file" usage:"PEM file of the authorities of the callers' certificates; empty asks for none"`
	// Audience and Callers make the plugin verify its callers.
	Audience string   `toml:"audience" flag:"audience" usage:"audience that the callers' service-account tokens must be meant for"`
	Callers  []string `toml:"callers" flag:"callers" usage:"identities that may call, for example system:serviceaccount:nvsentinel:janitor; csp-plugin-kwok admits everybody without any, and speaks plain text without a certificate"`
}

// Default admits the janitor of the chart; it lacks certificates.
func Default() Serving {
	return Serving{Listen: ":9090", Audience: "csp-plugin", Callers: []string{"system:serviceaccount:nvsentinel:janitor"}}
}

// Validate joins what is wrong for every plugin.
func (s Serving) Validate() error {
	var problems []error
	if s.Listen == "" {
		problems = append(problems, errors.New("listen (--listen) is empty"))
	}
	if (s.CertFile == "") != (s.KeyFile == "") || s.ClientCAFile != "" && s.CertFile == "" {
		problems = append(problems, errors.New("certFile (--tls-cert-file) and keyFile (--tls-key-file) belong together, and clientCAFile (--tls-client-ca-file) needs them"))
	}
	return errors.Join(problems...)
}
