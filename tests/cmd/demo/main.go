// Command demo shows a fault being repaired on a local cluster, from a kernel
// log line to the released node.
//
// Exit status: 0 every step was verified, 1 a step failed, 2 bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/tests/demo"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

func main() { os.Exit(run()) }

func run() int {
	store := flag.String("store", "sqlite", "Store: sqlite, postgresql or mongodb.")
	strategy := flag.String("strategy", "PROCESS", "Processing strategy: PROCESS, or PERSIST_ONLY to show that such a fault changes nothing.")
	nodes := flag.Int("nodes", 20, "Number of simulated GPU nodes, at least 4.")
	keep := flag.Bool("keep", false, "Keep everything running until Ctrl-C.")
	without := flag.String("break", "", "Service that is not started: "+strings.Join(fleet.Services(), ", "))
	evidence := flag.String("evidence", "", "Directory for the record and the Node before, during and after the demo, as JSON.")
	limit := flag.Duration("step-limit", 60*time.Second, "Timeout of one step.")
	flag.Parse()
	if err := check(*strategy, *without, *nodes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := show(ctx, demo.Options{
		Out: os.Stdout, Keep: *keep, Evidence: *evidence, StepLimit: *limit, PersistOnly: *strategy == "PERSIST_ONLY",
		Fleet: fleet.Options{
			Nodes: *nodes, Store: *store, Without: *without, Progress: os.Stdout,
			SettleTime: 5 * time.Second, RebootTime: 3 * time.Second,
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// show runs the demo with the services that were built beside this program.
func show(ctx context.Context, o demo.Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Fleet.Bin = filepath.Dir(self)
	if _, err := os.Stat(filepath.Join(o.Fleet.Bin, "node-connector")); err != nil {
		return fmt.Errorf("finding the services in the directory of the demo, run it with make demo: %w", err)
	}
	if o.Fleet.Root, err = fleet.Root(); err != nil {
		return err
	}
	if !o.PersistOnly && o.Fleet.Without == "" {
		if o.DCGM, err = dcgm(ctx, o); err != nil {
			return err
		}
	}
	return demo.Run(ctx, o)
}

// dcgm builds the monitor and the simulated DCGM of the second fault, and returns the
// folder they are in. Without a working C compiler it is empty, and a message is printed: this
// is the only reason for which the demo may leave something out.
func dcgm(ctx context.Context, o demo.Options) (string, error) {
	dir := filepath.Join(o.Fleet.Bin, "dcgm")
	err := fleet.BuildDCGM(ctx, o.Fleet.Root, dir, o.Out)
	if errors.Is(err, dcgmsim.ErrNoCompiler) {
		fmt.Fprintln(o.Out, "Skipping the fault that only DCGM detects:", err)
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("building the DCGM fault detection: %w", err)
	}
	return dir, nil
}

func check(strategy, without string, nodes int) error {
	var problems []error
	if strategy != "PROCESS" && strategy != "PERSIST_ONLY" {
		problems = append(problems, fmt.Errorf("STRATEGY %q is not PROCESS or PERSIST_ONLY", strategy))
	}
	if without != "" && !slices.Contains(fleet.Services(), without) {
		problems = append(problems, fmt.Errorf("BREAK %q is not one of %s", without, strings.Join(fleet.Services(), ", ")))
	}
	if nodes < 4 {
		problems = append(problems, fmt.Errorf("NODES %d is less than 4", nodes))
	}
	return errors.Join(problems...)
}
