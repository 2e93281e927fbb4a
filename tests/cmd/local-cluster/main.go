// Command local-cluster runs a local Kubernetes cluster with simulated GPU nodes: one for the
// demo, for trying things manually and for tests that outlive one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, as help documents them.
const (
	exitFine      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitNoCluster = 3
)

var (
	errUsage     = errors.New("invalid usage")
	errNoCluster = errors.New("no cluster is running")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout, stderr)
	if err == nil {
		return exitFine
	}
	fmt.Fprintln(stderr, "local-cluster:", err)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errNoCluster):
		return exitNoCluster
	default:
		return exitFailed
	}
}
