// Command mutate-strategy takes every filter on the processing strategy away,
// one at a time, and lists the tests that notice: make mutate-strategy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/nvidia/nvsentinel/tests/overlay"
	"github.com/nvidia/nvsentinel/tests/strategy"
)

func main() {
	only := flag.String("only", "", "Regular expression of the rows to run, matched against layer and words.")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintf(os.Stderr, "\n%v\n", err)
		os.Exit(1)
	}
	fmt.Println("\nTests detect the removal of every filter.")
}

func run(ctx context.Context, only string) error {
	rows, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := overlay.Root(ctx)
	if err != nil {
		return err
	}
	fmt.Println("| | layer | filter | where | test that fails without it |\n|---|---|---|---|---|")
	return strategy.Mutate(ctx, root, rows, os.Stdout)
}
