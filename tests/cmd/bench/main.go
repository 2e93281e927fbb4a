// Command bench prints the suite's figures, each beside the floor measured in
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
	only := flag.String("only", "", "comma-separated figures: "+strings.Join(bench.Figures(), ", ")+"; empty measures all")
	quick := flag.Bool("quick", false, "a tenth of the sizes")
	deep := flag.Int("deep", 0, "records of a third history for the analyzer, for example 10000000; it takes minutes and about 2.3 GB for each million")
	noise := flag.Duration("noise", 0, "how long one node reports without end beside others, twice; at least 10s, so that it reaches its quota; default 5m, with -quick 30s")
	o := bench.Options{Sizes: bench.Full(), Progress: os.Stderr}
	flag.StringVar(&o.Against, "against", "", "folder with other binaries under the same names, for example of an earlier commit, which are measured in turns with the present ones")
	flag.BoolVar(&o.Janitor, "janitor", false, "run the janitor and its plugin beside cordon, repair, drain and storm")
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
