// Package demo takes a fault from a kernel log line to a repaired node on a
// running fleet, shows every step as it happens, and verifies each against the
// API server and the store.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// Options of a demo.
type Options struct {
	Fleet fleet.Options
	// PersistOnly first sends a PERSIST_ONLY fault on a node of its own, and
	// checks at the end that it changed nothing.
	PersistOnly bool
	// DCGM is the folder of fleet.BuildDCGM: a fault that DCGM sees follows that of the
	// kernel log, on a node of its own. Empty leaves it out.
	DCGM string
	// StepLimit is how long one step may take before the demo has failed.
	StepLimit time.Duration
	// Evidence is a folder for the record and the Node before, during and
	// after, as JSON; empty writes none.
	Evidence string
	// Keep leaves the fleet running until ctx ends, and prints how to inspect it.
	Keep bool
	Out  io.Writer
}

// The nodes the demo uses.
const (
	faulty        = "gpu-1"
	watched       = "gpu-0"
	inspectedNode = "gpu-2"
	xid           = 79
)

// Run runs the demo. It returns nil only if every step was verified.
func Run(ctx context.Context, o Options) error {
	if o.PersistOnly {
		o.Fleet.StrategyOf = func(node string) string {
			if node == faulty {
				return string(record.Process)
			}
			return string(record.PersistOnly)
		}
	}
	o.Fleet.RemediationConfig = remediation
	o.Fleet.Chains = chainFiles(o.Fleet.Root)
	say := func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }
	say("Starting a control plane with %d simulated GPU nodes and every service (store: %s).", o.Fleet.Nodes, o.Fleet.Store)
	began := time.Now()
	f, err := fleet.Start(ctx, o.Fleet)
	if err != nil {
		return fmt.Errorf("starting the fleet: %w", err)
	}
	err = show(ctx, f, o, say)
	if err != nil && ctx.Err() == nil {
		say("\nThe demo failed: %v\n\n%s", err, f.Logs(faulty, 8))
	}
	if o.Keep && ctx.Err() == nil {
		kubectl, buildErr := controlplane.Builder{Root: o.Fleet.Root, Progress: o.Out}.BuildKubectl(ctx)
		if buildErr != nil {
			kubectl = "kubectl"
		}
		say("\nEverything keeps running until Ctrl-C. Inspect it with:\n"+
			"  export KUBECONFIG=%s NVSENTINEL_STORE='%s'\n  alias kubectl=%s nvsentinel=%s\n"+
			"  nvsentinel why %s\n  nvsentinel status\n  kubectl get nodes\n  kubectl get rebootnodes,repairruns\n  kubectl describe node %s\n"+
			"Logs, kernel logs and the store are in %s.\nBreak another node with:\n  echo '%s' > %s/machines/gpu-0/kernel/printk",
			f.Cluster.AdminKubeconfig(), f.DSN, kubectl, filepath.Join(o.Fleet.Bin, "nvsentinel"), faulty, faulty,
			f.Dir, "NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.", f.Dir)
		<-ctx.Done()
	}
	stop := f.Stop()
	say("Stopped after %s. No process or file is left.", time.Since(began).Round(time.Second))
	return errors.Join(err, stop)
}

func show(ctx context.Context, f *fleet.Fleet, o Options, say func(string, ...any)) error {
	if err := f.AddWorkloads(ctx); err != nil {
		return err
	}
	say("%d nodes are Ready, %d processes are running.", o.Fleet.Nodes, len(f.Services()))
	var before string
	if o.PersistOnly {
		var err error
		if before, err = persistOnly(ctx, f, o, say); err != nil {
			return err
		}
	}
	line := ""
	story, err := follow(ctx, f, o, sense{node: faulty, monitor: fleet.Monitor, check: "SysLogsXIDError"}, func() (err error) {
		if line, err = f.WriteXID(faulty, 3, xid); err == nil {
			say("\nKernel log line written on %s:\n  %s\n", faulty, line)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := story.write(o.Evidence); err != nil {
		return err
	}
	if err := story.explained(ctx, o, line); err != nil {
		return err
	}
	if o.PersistOnly {
		return unchanged(ctx, f, before, say)
	}
	if o.DCGM != "" {
		if err := dcgmFault(ctx, f, o, say); err != nil {
			return err
		}
	}
	if err := repairedByAChain(ctx, f, o, say); err != nil {
		return err
	}
	say("Every step was verified against the API server and the store.")
	return nil
}

// follow breaks a node and follows its story to the end, verified.
func follow(ctx context.Context, f *fleet.Fleet, o Options, from sense, hurt func() error) (*story, error) {
	first, err := f.Node(ctx, from.node)
	if err != nil {
		return nil, err
	}
	s := newStory(f, from, first)
	if s.labels, err = watchLabels(ctx, f, first); err != nil {
		return nil, err
	}
	if err := hurt(); err != nil {
		return nil, err
	}
	err = s.follow(ctx, o.StepLimit, o.Out)
	fmt.Fprintf(o.Out, "%s  State labels of %s: %s.\n", s.table(), s.name, s.labels)
	if err != nil {
		return nil, err
	}
	return s, s.verify(ctx)
}

// persistOnly writes a fault whose monitor reports with PERSIST_ONLY and waits until it is
// stored. It returns the node as it was before.
func persistOnly(ctx context.Context, f *fleet.Fleet, o Options, say func(string, ...any)) (string, error) {
	var before string
	// The controllers of Kubernetes write on a new Node too, once.
	err := until(ctx, o.StepLimit, watched+" to be known to every controller", func() (ok bool, err error) {
		before, ok, err = snapshot(ctx, f, watched)
		return ok, err
	})
	if err != nil {
		return "", err
	}
	line, err := f.WriteXID(watched, 3, xid)
	if err != nil {
		return "", err
	}
	say("\nKernel log line written on %s, whose monitor reports PERSIST_ONLY:\n  %s", watched, line)
	err = until(ctx, o.StepLimit, "the PERSIST_ONLY record to be stored", func() (bool, error) {
		records, err := f.Records(ctx, watched)
		return len(records) > 0 && records[0].Event.ProcessingStrategy == record.PersistOnly, err
	})
	if err == nil {
		say("The record is stored. Next is a PROCESS fault on %s, which leads to remediation.", faulty)
	}
	return before, err
}

func unchanged(ctx context.Context, f *fleet.Fleet, before string, say func(string, ...any)) error {
	after, _, err := snapshot(ctx, f, watched)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("node %s changed although its fault is PERSIST_ONLY:\nbefore %s\nafter  %s", watched, before, after)
	}
	records, err := f.Records(ctx, watched)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Evaluated() || r.Status.NodeQuarantined != "" || r.Status.Remediation != nil {
			return fmt.Errorf("record %s of a PERSIST_ONLY fault led to an action", r.ID)
		}
	}
	say("Node %s: %d record stored as PERSIST_ONLY, and metadata, spec and conditions are byte-equal (%d bytes compared).", watched, len(records), len(after))
	say("Every step was verified against the API server and the store.")
	return nil
}

// until polls cond (which is cheap) until it holds or the limit has passed.
func until(ctx context.Context, limit time.Duration, what string, cond func() (bool, error)) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := cond()
		if ok && err == nil {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return errors.Join(fmt.Errorf("waited %s for %s, without success", limit, what), last)
		case <-tick.C:
		}
	}
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-len(s))) }
