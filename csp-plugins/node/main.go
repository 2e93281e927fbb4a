// Command node is the provider plugin that needs no provider: it reboots a machine through a
// privileged Job on its own node. A Job is created once per idempotency key, and deleted if
// the kubelet does not start it in time.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const name = "csp-plugin-node"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-node is the provider plugin that reboots a node through a privileged Job on that node."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	impl := &Plugin{Config: cfg, Client: cluster.Clientset, Clock: d.Clock, Log: d.Log, Metrics: NewMetrics(d.Registry)}
	d.Go("cleanup", impl.Clean)
	if cfg.Anyone {
		cfg.Callers = nil
	}
	return cfg.Start(d, cluster.Clientset, impl)
}
