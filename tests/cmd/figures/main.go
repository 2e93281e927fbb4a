// Command figures prints the figures of a checked-out tree of this repository as
// Markdown: lines of code, packages, modules, programs, keys, metrics and lengths. It
// reads files alone, so that it measures older trees too, and depends neither on go.work
// nor on the modules.
//
// Exit status: 0 the figures are printed, 1 the tree could not be read, 2 bad arguments.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `Prints the figures of a tree as Markdown.

  figures [--root FOLDER] [--binaries FOLDER]

A code line is a line with at least one token. Product code excludes _test.go files, generated
files, and the following directories for tests, the demo and generation:

%s
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, usage, "  "+strings.Join(machineryFolders, "\n  "))
		flags.PrintDefaults()
	}
	root := flags.String("root", ".", "Root directory of the checked-out tree to measure. It must be a git work tree.")
	folder := flags.String("binaries", "", "Directory of built programs whose sizes are printed too.")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "figures: unknown argument %q, use --root FOLDER or --binaries FOLDER\n", flags.Arg(0))
		return 2
	}
	t, err := readTree(ctx, *root)
	if err != nil {
		fmt.Fprintln(stderr, "figures:", err)
		return 1
	}
	var binaries []binary
	if *folder != "" {
		if binaries, err = readBinaries(*folder); err != nil {
			fmt.Fprintln(stderr, "figures:", err)
			return 1
		}
	}
	write(stdout, t, binaries)
	return 0
}
