// Package upstream is the way of a node's connector to the gateway: the place
// where its records go, and where it learns what is stored of its node. It links
// no database.
package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Config configures the connection to the gateways.
type Config struct {
	// Address is one or several host:port with commas; every address that a host
	// has is a gateway. Required.
	Address string `toml:"address" flag:"gateway" usage:"Addresses of the gateways, as host:port, separated by commas. All addresses of a DNS name are used."`
	// TokenFile holds the projected token of the connector's pod. Required.
	TokenFile string `toml:"tokenFile" flag:"gateway-token-file" usage:"File with the projected token of the Pod for the gateway, read again for each call."`
	// CAFile signs the gateways' certificates. Required.
	CAFile string `toml:"caFile" flag:"gateway-ca-file" usage:"PEM file with the CA certificates that verify the gateways, read again for each connection."`
	// ServerName is what their certificates are for; empty is the first host.
	ServerName string `toml:"serverName" flag:"gateway-server-name" usage:"Server name in the certificates of the gateways. Empty uses the host of the first address."`
	// CertFile and KeyFile are the connector's own, where gateways ask for one.
	CertFile string `toml:"certFile" flag:"gateway-cert-file" usage:"PEM file with the client certificate of the connector, for gateways that request one."`
	KeyFile  string `toml:"keyFile" flag:"gateway-key-file" usage:"PEM file with the private key of the client certificate."`
}

// Default is where the chart mounts the files.
func Default() Config {
	return Config{
		TokenFile: "/var/run/secrets/nvsentinel-gateway/token", CAFile: "/etc/nvsentinel/gateway/ca.crt",
	}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var problems []error
	for _, address := range c.addresses() {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			problems = append(problems, fmt.Errorf("gateway.address (--gateway) %q is not of the form host:port", address))
		}
	}
	for key, value := range map[string]string{
		"gateway.address (--gateway)": c.Address, "gateway.tokenFile (--gateway-token-file)": c.TokenFile, "gateway.caFile (--gateway-ca-file)": c.CAFile,
	} {
		if value == "" {
			problems = append(problems, fmt.Errorf("%s is empty", key))
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		problems = append(problems, errors.New("gateway.certFile (--gateway-cert-file) and gateway.keyFile (--gateway-key-file) must be set together"))
	}
	return errors.Join(problems...)
}

func (c Config) addresses() []string {
	var out []string
	for address := range strings.SplitSeq(c.Address, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// name is what the gateways' certificates are for.
func (c Config) name() string {
	if c.ServerName != "" {
		return c.ServerName
	}
	host, _, _ := net.SplitHostPort(c.addresses()[0])
	return host
}

// tls reads the files.
func (c Config) tls() (*tls.Config, error) {
	authorities, err := config.ReadAuthorities(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the gateways: %w", err)
	}
	conf := &tls.Config{RootCAs: authorities, ServerName: c.name(), MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the connector certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
