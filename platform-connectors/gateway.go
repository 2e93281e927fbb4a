package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// remembered is how many tokens a gateway keeps verdicts of: those of 10,000 nodes
// before and after they are renewed.
const remembered = 32768

// refusedTokenTTL is how long a refused token is not asked about again.
const refusedTokenTTL = 10 * time.Second

// burst is what a node may bring at once, for example after an outage of the
// gateways, in bytes.
const burst = 64 << 20

// buildGateway wires the connector between the nodes and the store. It listens
// when the store is open.
func buildGateway(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"-gateway/"+d.Version)
	if err != nil {
		return err
	}
	opened, err := storeopen.Open(ctx, cfg.Store.Reveal(), options(d, cfg, d.Registry))
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return opened.Close() })
	store, ok := opened.(gateway.Store)
	if !ok {
		return fmt.Errorf("the store cannot distinguish servers: it is a %T", opened)
	}
	review := func(of, audience string) *authn.Review {
		return authn.NewReview(cluster.Clientset.AuthenticationV1().TokenReviews(), authn.Verification{
			Audience: audience, CacheTTL: cfg.Gateway.TokenCacheTTL, Refused: refusedTokenTTL, AtOnce: cfg.Gateway.Reviews, Remembered: remembered,
		}, d.Clock, prometheus.WrapRegistererWith(prometheus.Labels{"caller": of}, d.Registry))
	}
	g := &gateway.Gateway{
		Callers: &gateway.Callers{
			Connectors: review("connectors", cfg.Gateway.Audience), Publishers: review("publishers", cfg.Publishers.Audience),
			Accounts: cfg.Gateway.Accounts, Policy: forwardpolicy.Policy{Agents: cfg.Publishers.Policy("").Agents},
			PerAddress: cfg.Gateway.PerAddress, Clock: d.Clock,
		},
		Shares: &gateway.Shares{PerSecond: cfg.Gateway.NodeBytes, Burst: burst, Clock: d.Clock},
		Store:  store, PerNode: cfg.Gateway.PerNode, Memory: gateway.NewMemory(cfg.Gateway.MaxBytes), MaxCalls: gateway.MaxCalls,
		Clock: d.Clock, Log: d.Log, Metrics: gateway.NewMetrics(d.Registry),
	}
	g.Quotas = gateway.NewQuotas(&gateway.Quotas{
		Limits: forwardpolicy.Quota{Bytes: cfg.Gateway.DayBytes, Records: cfg.Gateway.DayRecords}, Gateway: gatewayName(cfg),
		Days: opened, Clock: d.Clock, Log: d.Log, Metrics: g.Metrics,
	})
	d.Go("quotas", g.Quotas.Run)
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", cfg.Gateway.Listen)
	if err != nil {
		return fmt.Errorf("listening for connectors: %w", err)
	}
	d.Log.Info("gateway listening for connectors", "address", l.Addr().String())
	certificates := gateway.Certificates{Cert: cfg.Gateway.CertFile, Key: cfg.Gateway.KeyFile, ClientCA: cfg.Gateway.ClientCAFile}
	limits := gateway.Limits{Connections: cfg.Gateway.Connections, PerNode: cfg.Gateway.NodeConnections, PerAddress: cfg.Gateway.PerAddress}
	d.Go("gateway", func(ctx context.Context) error { return gateway.Serve(ctx, l, g, certificates, limits) })
	if err := inspection(ctx, d, cfg); err != nil { // looking must not keep events from the store
		d.Log.Error("store reading through this gateway disabled until it restarts, connectors are served", "error", err)
	}
	return nil
}

// gatewayName is the one by which this gateway finds again what it has noted of its nodes:
// that of its pod, and of its address, where several share a host.
func gatewayName(cfg Config) string {
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	return host + " " + cfg.Gateway.Listen
}

// inspection lets the store be read at a loopback address, over connections of its own
// that cannot write and take none from those of the connectors.
func inspection(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	if cfg.Gateway.InspectAddress == "" {
		return nil
	}
	records, err := storeopen.OpenReader(ctx, cfg.Store.Reveal(), options(d, cfg, nil))
	if err != nil {
		return err
	}
	d.OnStop("store for reading", func(context.Context) error { return records.Close() })
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", cfg.Gateway.InspectAddress)
	if err != nil {
		return fmt.Errorf("listening for store readers (--inspect-address, empty disables it): %w", err)
	}
	d.Log.Info("gateway listening for store readers", "address", l.Addr().String())
	d.Go("inspection", func(ctx context.Context) error { return remote.Serve(ctx, l, records, d.Log) })
	return nil
}
