package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// TLS are the files by which a plugin shows who it is. They are read for every
// connection, so a rotation needs no restart.
type TLS struct {
	// CertFile and KeyFile are the plugin's certificate, as PEM.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of the callers' certificates; empty
	// asks for none.
	ClientCAFile string
}

// option makes a server speak TLS; files that can not be read are an error.
func (t TLS) option() (grpc.ServerOption, error) {
	if _, err := t.config(); err != nil {
		return nil, err
	}
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.config() },
	})), nil
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the plugin's certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
	if t.ClientCAFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the client CA certificates: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the client CA certificates: %s contains no certificate", t.ClientCAFile)
	}
	return c, nil
}

// Local reports whether an address that a plugin listens on, host:port or
// unix:///path, can be called from this host alone. One without a host is every
// address of the host.
func Local(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// listen listens on host:port or unix:///path. A socket that a dead process
// left is replaced.
func listen(ctx context.Context, address string) (net.Listener, error) {
	network := "tcp"
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		network, address = "unix", strings.TrimPrefix(path, "//")
		if err := discard(ctx, address); err != nil {
			return nil, err
		}
	}
	lis, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listening for the janitor: %w", err)
	}
	return lis, nil
}

// discard removes a socket that nobody listens on.
func discard(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listening for the janitor: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("listening for the janitor: %s is not a socket", path)
	}
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		return errors.Join(fmt.Errorf("listening for the janitor: another process listens on %s", path), conn.Close())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing a stale socket: %w", err)
	}
	return nil
}
