// Command release does parts of hack/release.sh: it serves a registry for a dry run, verifies that
// a registry has what a release lists, and collects licenses.
//
// Exit status: 0 everything is there, 1 something is missing or differs, 2 bad arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage:
  release serve --address 127.0.0.1:5000 --dir FOLDER
        print the address of a registry, and serve it until a signal arrives
  release verify --digests FILE --documents FOLDER
        verify that the images of FILE are in their registry under their tag and digest, that each
        image has a list of its contents and each index a provenance, and that these are the files in FOLDER;
        --attestations FILE lists these documents for hack/release-sign.sh
  release licenses --program FILE --dir FOLDER
        copy the license files of the modules that a program links
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	command, known := map[string]func(context.Context, []string, io.Writer, io.Writer) error{"serve": serve, "verify": verify, "licenses": writeLicenses}[args[0]]
	if !known {
		fmt.Fprintf(stderr, "release: there is no command %q\n%s", args[0], usage)
		return 2
	}
	err := command(ctx, args[1:], stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errArguments):
		fmt.Fprintln(stderr, "release:", err)
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "release:", err)
		return 1
	}
	return 0
}

// errArguments is an error of the command line.
var errArguments = errors.New("bad arguments")
