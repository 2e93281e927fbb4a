// Command soak runs the chaos test for a long time, with outages of minutes,
// on all stores, and prints what happened: make soak DURATION=60m.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/journey"
)

// times of a soak: one outage of three lasts minutes, the others seconds.
var times = journey.Times{Shortest: 3 * time.Second, Longest: 3 * time.Minute, Long: time.Minute, Lease: 6 * time.Second}

func main() {
	duration := flag.Duration("duration", time.Hour, "Time during which new runs start.")
	seed := flag.Uint64("seed", 0, "Seed of a single run to repeat. 0 runs all.")
	first := flag.Uint64("first", 0, "First seed of a batch of five runs. 0 selects seeds that have not run before.")
	evidence := flag.String("evidence", "soak-evidence", "Directory for the artifacts of failed runs.")
	flag.DurationVar(&times.Longest, "longest", times.Longest, "Maximum duration of an outage.")
	flag.DurationVar(&times.Long, "long", times.Long, "Minimum duration of an outage that counts as long.")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *duration, *first, *seed, *evidence); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, duration time.Duration, first, seed uint64, evidence string) error {
	if times.Long < times.Shortest || times.Longest < times.Long {
		return fmt.Errorf("outages: --long %s must lie between %s and --longest %s", times.Long, times.Shortest, times.Longest)
	}
	root, err := fleet.Root()
	if err != nil {
		return err
	}
	if evidence, err = filepath.Abs(evidence); err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "nvsentinel-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	say := log.New(os.Stdout, "", log.Ltime).Printf
	if _, err := fleet.Build(ctx, root, bin, os.Stdout, "-tags", "crashpoints"); err != nil {
		return err
	}
	round, missing := journey.Here()
	soak := journey.NewRun(journey.RunOptions{
		Root: root, Bin: bin, Times: times, Round: round, Evidence: evidence, Log: say, Again: "make soak SEED=%d", Until: time.Now().Add(duration),
	})
	if seed > 0 {
		err = soak.Seeds(ctx, seed, 1)
	} else {
		if first == 0 {
			first = journey.NewSeeds(time.Now())
		}
		say("the first seed is %d, run make soak FIRST=%d to start there again", first, first)
		err = soak.Soak(ctx, journey.Batch(first))
	}
	tally := soak.Tally()
	fmt.Printf("\n%s", tally)
	for _, point := range tally.Cold() {
		err = errors.Join(err, fmt.Errorf("none of the last 50 seeds passed %s", point))
	}
	if missing != nil {
		fmt.Printf("the seeds of mongodb ran only on the other stores: %v\n", missing)
	}
	if n := len(tally.Violations); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations, the evidence is in %s", n, evidence))
	}
	return err
}
