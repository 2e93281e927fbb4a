// Package eventexporter sends every health event, as a CloudEvent, to a
// receiver outside the cluster.
package eventexporter

import (
	"context"
	"strings"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/delivery"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// purpose is the first sentence of the help.
const purpose = "event-exporter sends stored health events to an HTTP receiver as CloudEvents."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	return daemon.NewController(delivery.Consumer, purpose, defaultConfig(), build)
}

func build(ctx context.Context, d *daemon.Daemon, cfg Config) error {
	e := cfg.Exporter
	frame, err := cloudevent.NewFrame(e.Metadata)
	if err != nil {
		return err
	}
	receiver, err := newSender(d, cfg)
	if err != nil {
		return err
	}
	records, err := storeopen.Open(ctx, cfg.Store.Reveal(), storeopen.Options{SingleHost: cfg.SingleHost, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	handler := &delivery.Exporter{
		Records: records, Receiver: receiver, Frame: frame,
		Policy: e.Failure.policy(), Pauses: e.Failure.pauses(), Partitions: cfg.Workers, Batch: e.Sink.BatchSize,
		LookBack: e.Backfill.lookBack(), Rate: e.Backfill.RateLimit, MaxLag: e.MaxLag,
		Clock: d.Clock, Log: d.Log, Metrics: delivery.NewMetrics(d.Registry),
	}
	service := handler.Service()
	service.Vet = consumer.OpenCrashMemory(records, delivery.Consumer, d.Clock).Vetting(nil, handler.Try)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kubeconfig, Task: "events"}, service)
	handler.Metrics.Show(handler)
	d.Ready("receiver", handler.Receiving)
	d.Ready("lag", handler.KeepsUp)
	return nil
}

// newSender makes the way to the receiver.
func newSender(d *daemon.Daemon, cfg Config) (*sender.Sender, error) {
	sink, oidc := cfg.Exporter.Sink, cfg.Exporter.OIDC
	o := sender.Options{Endpoint: sink.Endpoint, Mode: sink.Mode, Timeout: sink.Timeout, Connections: cfg.Workers, TLS: sink.tls()}
	switch {
	case oidc.TokenURL != "":
		client, err := sender.NewClient(sink.tls(), 1)
		if err != nil {
			return nil, err
		}
		o.Credentials = &sender.ClientCredentials{
			TokenURL: oidc.TokenURL, ClientID: oidc.ClientID, SecretFile: oidc.SecretFile,
			Scopes: strings.Fields(oidc.Scope), Client: client, Clock: d.Clock,
		}
	case sink.TokenFile != "":
		o.Credentials = sender.TokenFile(sink.TokenFile)
	}
	return sender.New(o)
}
