package janitor

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/janitor/internal/gpureset"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// controllers makes those of the kinds that are enabled.
func controllers(d *daemon.Daemon, cfg Config, shared reconciler.Deps) ([]reconciler.Member, error) {
	plugins := map[provider.Endpoint]*provider.Plugin{}
	var members []reconciler.Member
	var err error
	for _, one := range []struct {
		kind reconciler.Kind
		nodeController
	}{{reconciler.RebootNode(), cfg.reboot()}, {reconciler.TerminateNode(), cfg.terminate()}} {
		if !one.Enabled {
			continue
		}
		deps := shared
		if deps.Excluded, err = one.excluded(); err != nil {
			return nil, err
		}
		if plugins[one.Endpoint] == nil {
			if plugins[one.Endpoint], err = dial(d, one.Endpoint, one.kind.Name); err != nil {
				return nil, err
			}
		}
		members = append(members, reconciler.New(one.kind, one.Policy, plugins[one.Endpoint], deps))
	}
	if cfg.GPUReset.Enabled {
		resets, err := resetting(d, cfg, shared)
		if err != nil {
			return nil, err
		}
		members = append(members, resets)
	}
	return members, nil
}

// dial makes the connection to the plugin of a kind and watches its health.
func dial(d *daemon.Daemon, e provider.Endpoint, kind string) (*provider.Plugin, error) {
	plugin, err := provider.Dial(e)
	if err != nil {
		return nil, err
	}
	d.OnStop("plugin", func(context.Context) error { return plugin.Close() })
	health := provider.NewWatch(plugin, d.Clock, d.Log, prometheus.WrapRegistererWith(prometheus.Labels{"kind": kind}, d.Registry))
	d.Ready("plugin of "+kind, health.Ready)
	d.Go("health of the plugin of "+kind, health.Run)
	return plugin, nil
}

// resetting makes the controller of GPUResets, which needs no plugin.
func resetting(d *daemon.Daemon, cfg Config, deps reconciler.Deps) (_ *gpureset.Reconciler, err error) {
	if deps.Excluded, err = cfg.resetExcluded(); err != nil {
		return nil, err
	}
	return gpureset.New(cfg.resetPolicy(), gpureset.Deps{
		Deps: deps, Resets: gpureset.NewMetrics(d.Registry),
		Services: gpureset.GPUOperator(cfg.GPUReset.ServiceManager.Namespace), Tool: cfg.resetTool(),
	}), nil
}
