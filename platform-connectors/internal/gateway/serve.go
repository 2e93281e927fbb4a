package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Bounds of connections.
const (
	// streams of one connection; a connector needs three.
	streams = 16
	// window is how many bytes a caller may send ahead of being read.
	window = 256 << 10
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

// Limits of connections.
type Limits struct {
	// Connections of all callers together, and of one address.
	Connections, PerAddress int
}

// Serve answers on the listener until ctx ends, then lets what is in flight
// finish.
func Serve(ctx context.Context, l net.Listener, g *Gateway, certificates Certificates, limits Limits) error {
	conf, err := certificates.config()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(conf)),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(streams), grpc.MaxHeaderListSize(64<<10), grpc.ConnectionTimeout(handshake),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: 2 * patience,
		}),
	)
	server.RegisterService(service(), g)
	done := make(chan error, 1)
	go func() { done <- server.Serve(&bounded{Listener: l, limits: limits, metrics: g.Metrics}) }()
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

// bounded closes connections beyond its limits at once.
type bounded struct {
	net.Listener
	limits  Limits
	metrics *Metrics

	mu    sync.Mutex
	total int
	of    map[string]int
}

// Accept waits for a connection that there is room for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			host = conn.RemoteAddr().String()
		}
		if b.enter(host) {
			b.metrics.connections.Inc()
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { b.leave(host) })}, nil
		}
		b.metrics.turnedAway.Inc()
		_ = conn.Close() // nobody is told
	}
}

func (b *bounded) enter(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total >= b.limits.Connections || b.of[host] >= b.limits.PerAddress {
		return false
	}
	if b.of == nil {
		b.of = map[string]int{}
	}
	b.total++
	b.of[host]++
	return true
}

func (b *bounded) leave(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics.connections.Dec()
	b.total--
	if b.of[host]--; b.of[host] == 0 {
		delete(b.of, host)
	}
}

// counted is a connection that says when it ends.
type counted struct {
	net.Conn
	leave func()
}

// Close ends it.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
