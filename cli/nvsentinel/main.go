// Command nvsentinel shows what the suite does to nodes and why, and sends an operator's
// requests to it. Installed as kubectl-nvsentinel it is a plugin of kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	program := command.Program{
		Name: os.Args[0], Version: daemon.Version(), Out: os.Stdout, Err: os.Stderr,
		Store: os.Getenv("NVSENTINEL_STORE"), Colour: colour(), Terminal: terminal(), Clock: clock.RealClock{},
	}
	code := program.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// colour is for terminals that want it (https://no-color.org).
func colour() bool {
	return terminal() && os.Getenv("NO_COLOR") == ""
}

// terminal reports whether the output is one that can be cleared.
func terminal() bool { return term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb" }
