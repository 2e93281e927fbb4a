package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	ocireg "github.com/google/go-containerregistry/pkg/registry"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// serveRegistry is a registry in memory, for the chart; the images are in containerd.
func serveRegistry(ctx context.Context, cert localcluster.Certificate) error {
	pair, err := tls.X509KeyPair(cert.Cert, cert.Key)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "443"))
	if err != nil {
		return fmt.Errorf("serving the registry: %w", err)
	}
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{Handler: ocireg.New(ocireg.Logger(quiet)), ErrorLog: quiet, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	return nil
}
