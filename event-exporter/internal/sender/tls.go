package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// TLS are the files by which receiver and exporter know each other. They are
// read for every connection, so a rotation needs no restart.
type TLS struct {
	// CAFile holds the authorities of the receiver's certificate, as PEM; empty
	// means those of the system.
	CAFile string
	// CertFile and KeyFile are the exporter's certificate; empty shows none.
	CertFile, KeyFile string
}

// config reads the files.
func (t TLS) config(serverName string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the receiver's authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("reading the receiver's authorities: %s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the exporter's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// dial connects with the files as they are now.
func (t TLS) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	config, err := t.config(host)
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}, Config: config}
	return d.DialContext(ctx, network, address)
}
