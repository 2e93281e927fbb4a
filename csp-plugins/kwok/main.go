// Command kwok is the provider plugin of simulated nodes.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/callers"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/kwok"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const name = "csp-plugin-kwok"

func main() { daemon.Main(name, kwok.Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg kwok.Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	books, entries, err := kwok.OpenAuditLog(cfg.Books)
	if err != nil {
		return err
	}
	d.OnStop("books", func(context.Context) error { return books.Close() })
	impl := kwok.New(books, entries, kwok.Options{
		Machines:   kwok.Machines{Client: cluster.Clientset, BootIDDir: cfg.BootIDDir, Hook: cfg.RebootHook},
		RebootTime: cfg.RebootTime, FaultFile: cfg.Faults,
		Clock: d.Clock, Log: d.Log, Metrics: kwok.NewMetrics(d.Registry),
	})
	panicked := func(method string, value any) { d.Log.Error("call panicked", "method", method, "panic", value) }
	options := plugin.Options{Panicked: panicked}
	if cfg.CertFile != "" {
		options.TLS = &plugin.TLS{CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, ClientCAFile: cfg.ClientCAFile}
	}
	if err := callers.Admit(&options, callers.Reviews{Client: cluster.Clientset}, cfg.Audience, cfg.Callers); err != nil {
		return err
	}
	d.Go("reboots", impl.Run)
	d.Go("server", func(ctx context.Context) error { return plugin.ListenAndServe(ctx, cfg.Listen, impl, options) })
	return nil
}
