// Command scale prints what the suite takes at several numbers of nodes.
//
// Exit status: 0 every figure was measured (met or missed), 1 one could not
// be, 2 bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/nvidia/nvsentinel/tests/bench"
	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/scale"
)

func main() { os.Exit(run()) }

func run() int {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	table, err := measure(ctx, o)
	fmt.Print(table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		return 1
	}
	return 0
}

func parse(args []string) (scale.Options, error) {
	o := scale.Options{Sizes: scale.Full(), Progress: os.Stderr}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	only := flags.String("only", "", "Figures to measure, separated by commas: "+strings.Join(scale.Figures(), ", ")+". Empty measures all.")
	nodes := flags.String("nodes", "1000,3000,10000", "Numbers of nodes, separated by commas, in ascending order.")
	flags.DurationVar(&o.Sizes.Duration, "duration", o.Sizes.Duration, "Time that nodes report while gateways are killed.")
	flags.DurationVar(&o.Sizes.Idle, "idle", o.Sizes.Idle, "Time that idle services are measured.")
	flags.DurationVar(&o.Sizes.Outage, "outage", o.Sizes.Outage, "Duration of the outage of gateways and store.")
	flags.DurationVar(&o.Sizes.KillEvery, "kill-every", o.Sizes.KillEvery, "Interval between two kills of a gateway while nodes report.")
	flags.IntVar(&o.Sizes.Others, "others", o.Sizes.Others, "Number of other faults stored at the time of the measured cordons.")
	flags.IntVar(&o.Sizes.Rounds, "rounds", o.Sizes.Rounds, "Number of rounds of these faults.")
	flags.IntVar(&o.Sizes.Replicas, "replicas", o.Sizes.Replicas, "Number of replicas of each control plane service.")
	flags.StringVar(&o.Profiles, "profiles", "", "Directory for heap profiles of the services, which are then built with a profiling endpoint. Empty takes no profiles.")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	separated := func(r rune) bool { return r == ',' || r == ' ' }
	o.Only = strings.FieldsFunc(*only, separated)
	for _, text := range strings.FieldsFunc(*nodes, separated) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return o, fmt.Errorf("NODES %q is not a number", text)
		}
		o.Nodes = append(o.Nodes, n)
	}
	return o, nil
}

func measure(ctx context.Context, o scale.Options) (bench.Table, error) {
	var err error
	if o.Root, err = fleet.Root(); err != nil {
		return nil, err
	}
	var more []string
	dir := filepath.Join(o.Root, "bin")
	if o.Profiles != "" {
		if o.Profiles, err = filepath.Abs(o.Profiles); err != nil {
			return nil, err
		}
		flag, err := scale.Profiling(o.Root, filepath.Join(o.Profiles, "overlay"))
		if err != nil {
			return nil, err
		}
		more, dir = []string{flag}, filepath.Join(o.Profiles, "bin")
	}
	if o.Bin, o.Connectors, err = scale.Build(ctx, o.Root, dir, os.Stderr, more...); err != nil {
		return nil, err
	}
	return scale.Run(ctx, o)
}
