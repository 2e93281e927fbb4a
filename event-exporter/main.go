// Command event-exporter sends every health event, as a CloudEvent, to a
// receiver outside the cluster.
package main

import (
	"context"
	"strings"

	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/config"
	"github.com/nvidia/nvsentinel/event-exporter/internal/export"
	"github.com/nvidia/nvsentinel/event-exporter/internal/post"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func main() { daemon.Main(export.Consumer, config.Default(), build) }

func build(ctx context.Context, d *daemon.Daemon, cfg config.Config) error {
	e := cfg.Exporter
	frame, err := cloudevent.NewFrame(e.Metadata)
	if err != nil {
		return err
	}
	receiver, err := poster(d, cfg)
	if err != nil {
		return err
	}
	records, err := storeopen.Open(ctx, cfg.Store, storeopen.Options{SingleHost: cfg.SingleHost, Parts: cfg.Datastore, Logger: d.Log, Registerer: d.Registry, Clock: d.Clock})
	if err != nil {
		return err
	}
	d.OnStop("store", func(context.Context) error { return records.Close() })
	desk := &export.Desk{
		Records: records, Receiver: receiver, Frame: frame,
		Policy: e.Failure.Policy(), Pauses: e.Failure.Pauses(), Lanes: cfg.Workers, Batch: e.Sink.BatchSize,
		LookBack: e.Backfill.LookBack(), Rate: e.Backfill.RateLimit, MaxLag: e.MaxLag,
		Clock: d.Clock, Log: d.Log, Metrics: export.NewMetrics(d.Registry),
	}
	service := desk.Service()
	service.Vet = aside.Of(records, export.Consumer, d.Clock).Vetting(nil, desk.Try)
	consumer.Lead(d, consumer.Election{Lease: cfg.Lease, Kubeconfig: cfg.Kubeconfig, Task: "events"}, service)
	desk.Metrics.Show(desk)
	d.Ready("receiver", desk.Receiving)
	d.Ready("lag", desk.KeepsUp)
	return nil
}

// poster is the way to the receiver.
func poster(d *daemon.Daemon, cfg config.Config) (*post.Poster, error) {
	sink, oidc := cfg.Exporter.Sink, cfg.Exporter.OIDC
	o := post.Options{Endpoint: sink.Endpoint, Mode: sink.Mode, Timeout: sink.Timeout, Connections: cfg.Workers, TLS: sink.TLS()}
	switch {
	case oidc.TokenURL != "":
		client, err := post.NewClient(sink.TLS(), 1)
		if err != nil {
			return nil, err
		}
		o.Credentials = &post.ClientCredentials{
			TokenURL: oidc.TokenURL, ClientID: oidc.ClientID, SecretFile: oidc.SecretFile,
			Scopes: strings.Fields(oidc.Scope), Client: client, Clock: d.Clock,
		}
	case sink.TokenFile != "":
		o.Credentials = post.TokenFile(sink.TokenFile)
	}
	return post.New(o)
}
