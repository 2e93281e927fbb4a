package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Bounds of connections.
const (
	// streams of one connection; a connector needs three.
	streams = 8
	// window is how many bytes of a request a caller may send ahead of being read; it is
	// the least that HTTP/2 has.
	window = 64 << 10
	// handshake bounds the beginning of a connection.
	handshake = 10 * time.Second
	// age ends a connection, so that connectors spread over the gateways again.
	age = 30 * time.Minute
	// leave is how long calls in flight have when the gateway ends.
	leave = 10 * time.Second
)

// Certificates are the files of the gateway's identity. They are read again for
// each connection, because they are renewed.
type Certificates struct {
	// Cert and Key are the gateway's own.
	Cert, Key string
	// ClientCA signs the connectors' certificates; empty asks for none.
	ClientCA string
}

// config says what is wrong with the files.
func (c Certificates) config() (*tls.Config, error) {
	load := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the gateway's certificate: %w", err)
		}
		conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
		if c.ClientCA == "" {
			return conf, nil
		}
		pem, err := os.ReadFile(c.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("reading the authority of the connectors' certificates: %w", err)
		}
		conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !conf.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the authority of the connectors' certificates: %s holds none", c.ClientCA)
		}
		return conf, nil
	}
	conf, err := load()
	if err != nil {
		return nil, err
	}
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return load() }
	return conf, nil
}

// Serve answers on the listener until ctx ends, then lets what is in flight
// finish.
func Serve(ctx context.Context, l net.Listener, g *Gateway, certificates Certificates, limits Limits) error {
	conf, err := certificates.config()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer(
		grpc.Creds(identifying{credentials.NewTLS(conf)}),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(streams), grpc.MaxHeaderListSize(64<<10), grpc.ConnectionTimeout(handshake),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(4*window),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: 2 * patience,
		}),
	)
	server.RegisterService(service(), g)
	done, accepted := make(chan error, 1), newConnections(l, limits, g)
	go accepted.watch(ctx)
	go func() { done <- server.Serve(accepted) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving the gateway: %w", err)
	case <-ctx.Done():
	}
	timer := time.AfterFunc(leave, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return <-done
}
