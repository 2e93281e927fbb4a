// Command bench prints the suite's figures, each beside the baseline measured in
// the same run.
//
// Exit status: 0 every figure was measured (met or missed), 1 one could not
// be, 2 bad flags.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/bench"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

func main() { os.Exit(run()) }

func run() int {
	only := flag.String("only", "", "Figures to measure, separated by commas: "+strings.Join(bench.Figures(), ", ")+". Empty measures all.")
	quick := flag.Bool("quick", false, "Use a tenth of the sizes.")
	deep := flag.Int("deep", 0, "Number of records of a third history for the analyzer, for example 10000000. Each million takes minutes and about 2.3 GB.")
	noise := flag.Duration("noise", 0, "Duration of each of two runs in which one node reports continuously beside others, at least 10s, so that it reaches its quota. Defaults to 5m, or 30s with -quick.")
	o := bench.Options{Sizes: bench.Full(), Progress: os.Stderr}
	flag.StringVar(&o.Against, "against", "", "Directory with binaries of the same names, for example of an earlier commit, that are measured alternately with the current ones.")
	flag.BoolVar(&o.Janitor, "janitor", false, "Run the janitor and its plugin during cordon, repair, drain and storm.")
	flag.Parse()
	o.Only = strings.FieldsFunc(*only, func(r rune) bool { return r == ',' || r == ' ' })
	if *quick {
		o.Sizes = bench.Quick()
	}
	if err := o.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o.Sizes.Deep = *deep
	if *noise > 0 {
		o.Sizes.Noise = *noise
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	table, err := measure(ctx, o)
	fmt.Print(table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, o bench.Options) (bench.Table, error) {
	var err error
	if o.Root, err = fleet.Root(); err != nil {
		return nil, err
	}
	if o.Bin, err = fleet.Build(ctx, o.Root, filepath.Join(o.Root, "bin"), os.Stderr); err != nil {
		return nil, err
	}
	if o.Connectors, err = bench.BuildConnectors(ctx, o.Root, o.Bin, gobuild.Builder{Progress: os.Stderr}); err != nil {
		return nil, err
	}
	return bench.Run(ctx, o)
}
