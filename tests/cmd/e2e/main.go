// Command e2e installs the chart on a real node and goes the whole way with it: make
// e2e. It runs in the namespaces that hack/e2e.sh makes.
//
// Exit status: 0 every step held, 1 one did not, 2 bad arguments.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nvidia/nvsentinel/tests/e2e"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	o := e2e.Options{Out: os.Stdout}
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.StringVar(&o.Root, "root", "", "`folder` of the repository")
	flags.StringVar(&o.Work, "work", "", "`folder` for everything, which the namespaces know")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of helm and nvsentinel")
	flags.StringVar(&o.Images, "images", "", "`folder` of the images' archives")
	flags.StringVar(&o.Break, "break", "", "`image` that is replaced by one that does nothing; the run has to fail")
	flags.StringVar(&o.Profile, "profile", "", "`profile` of the chart: default or small; the chart's own if empty")
	flags.BoolVar(&o.Keep, "keep", false, "leave everything running at the end, until an interrupt")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || o.Root == "" || o.Work == "" || o.Bin == "" || o.Images == "" {
		fmt.Fprintln(os.Stderr, "e2e: want --root, --work, --bin and --images; make e2e runs it")
		return 2
	}
	if err := e2e.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return 0
}
