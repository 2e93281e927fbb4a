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

	"github.com/nvidia/nvsentinel/tests/bench"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

func main() { os.Exit(run()) }

func run() int {
	only := flag.String("only", "", "comma-separated figures: "+strings.Join(bench.Figures(), ", ")+"; empty measures all")
	quick := flag.Bool("quick", false, "a tenth of the sizes")
	deep := flag.Int("deep", 0, "records of a third history for the analyzer, for example 10000000; it takes minutes and about 2.3 GB for each million")
	noise := flag.Duration("noise", 0, "how long one node reports without end beside others; default 10m, with -quick 1m")
	flag.Parse()
	o := bench.Options{Sizes: bench.Full(), Progress: os.Stderr}
	o.Only = strings.FieldsFunc(*only, func(r rune) bool { return r == ',' || r == ' ' })
	if *quick {
		o.Sizes = bench.Quick()
	}
	if err := bench.Check(o.Only); err != nil {
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
	return bench.Run(ctx, o)
}
