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
	flags.StringVar(&o.Root, "root", "", "`Directory` of the repository.")
	flags.StringVar(&o.Work, "work", "", "Working `directory`, which is visible in the namespaces.")
	flags.StringVar(&o.Bin, "bin", "", "`Directory` of the programs helm and nvsentinel.")
	flags.StringVar(&o.Images, "images", "", "`Directory` of the image archives.")
	flags.StringVar(&o.Break, "break", "", "`Image` to replace by one that does nothing. The run must then fail.")
	flags.StringVar(&o.Profile, "profile", "", "`Profile` of the chart: default or small. Empty uses the default of the chart.")
	flags.BoolVar(&o.Keep, "keep", false, "Keep everything running at the end until an interrupt.")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || o.Root == "" || o.Work == "" || o.Bin == "" || o.Images == "" {
		fmt.Fprintln(os.Stderr, "e2e: --root, --work, --bin and --images are required, run it with make e2e")
		return 2
	}
	if err := e2e.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return 0
}
