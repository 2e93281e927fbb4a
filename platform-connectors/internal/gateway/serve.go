package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
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

// config returns the TLS configuration; its error is what is wrong with the files.
func (c Certificates) config() (*tls.Config, error) {
	load := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the gateway certificate: %w", err)
		}
		conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
		if c.ClientCA == "" {
			return conf, nil
		}
		authorities, err := config.ReadAuthorities(c.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("reading the CA certificates of the connectors: %w", err)
		}
		conf.ClientCAs, conf.ClientAuth = authorities, tls.RequireAndVerifyClientCert
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
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: 2 * requestTimeout,
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

// Metrics of a gateway.
type Metrics struct {
	calls         *prometheus.CounterVec
	refused       *prometheus.CounterVec
	connections   prometheus.Gauge
	inFlightBytes prometheus.Gauge
	waiting       prometheus.Gauge
	turnedAway    *prometheus.CounterVec
	overQuota     *prometheus.CounterVec
	countedBytes  prometheus.Counter
	share         *prometheus.GaugeVec
}

// droppedLetter is the label value of dead letters that are not kept.
const droppedLetter = "dead-letter"

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_requests_total", Help: "Requests of connectors, by method and gRPC code of the response.",
		}, []string{"method", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_refused_records_total", Help: "Records that their sender is not allowed to send, by reason. Inspect the node of each such record.",
		}, []string{"reason"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gateway_connections", Help: "Open connections to the gateway."}),
		inFlightBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_request_memory_bytes", Help: "Memory in bytes that is reserved for requests, from before they are received until they are answered.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_requests_waiting", Help: "Requests that wait for memory and are not received yet.",
		}),
		turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_connections_refused_total",
			Help: "Connections that were refused or closed, by reason. The reasons gateway, address (without a verified token) and node are limits of connections, anonymous is a missing token, and unread is a peer that does not read responses.",
		}, []string{"reason"}),
		overQuota: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_over_quota_records_total",
			Help: "Records of nodes above their daily quota, by outcome. Records with the outcome persist-only or repeat are counted and not stored, merge are stored as a fault of the whole check, and dead-letter are dead letters that are dropped.",
		}, []string{"outcome"}),
		countedBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_over_quota_bytes_total", Help: "Bytes of records that were counted and not stored, because their node is above its daily quota.",
		}),
		share: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_node_quota_used_ratio",
			Help: "Ratio of its daily quota that a node has used through all gateways, for at most 100 nodes that have used at least half of it.",
		}, []string{"node"}),
	}
	m.overQuota.WithLabelValues(droppedLetter)
	for _, verdict := range forwardpolicy.Verdicts() {
		m.overQuota.WithLabelValues(string(verdict))
	}
	for _, reason := range RefusedReasons() {
		m.turnedAway.WithLabelValues(string(reason))
	}
	for _, reason := range forwardpolicy.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	r.MustRegister(m.calls, m.refused, m.connections, m.inFlightBytes, m.waiting, m.turnedAway, m.overQuota, m.countedBytes, m.share)
	return m
}
