// Command kwok is the provider plugin of simulated nodes: a reboot takes a machine's power,
// lets time pass, and brings it back under another boot id; a termination takes its power,
// lets time pass, and then there is no such machine any more. It can be configured to fail,
// to hang or to lie, and it keeps an audit log of all it was asked and did. The log is also
// its memory: a reboot that was accepted is carried out once, whatever happens to the
// plugin, and a key that was executed is never executed again.
package main

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

const name = "csp-plugin-kwok"

// purpose is the first sentence of the help.
const purpose = "csp-plugin-kwok is the provider plugin for simulated kwok nodes in tests and demos."

func main() { daemon.Main(name, purpose, Default(), build) }

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	cluster, err := kube.Connect(cfg.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	journal, entries, err := OpenAuditLog(cfg.JournalFile)
	if err != nil {
		return err
	}
	d.OnStop("journal", func(context.Context) error { return journal.Close() })
	impl := New(journal, entries, Options{
		Machines:   Machines{Client: cluster.Clientset, BootIDDir: cfg.BootIDDir, Hook: cfg.RebootHook},
		RebootTime: cfg.RebootTime, FaultFile: cfg.Faults,
		Clock: d.Clock, Log: d.Log, Metrics: NewMetrics(d.Registry),
	})
	d.Go("reboots", impl.Run)
	return cfg.Start(d, cluster.Clientset, impl)
}
