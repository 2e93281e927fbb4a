// Command prepare builds what the project's make targets run, and reports its progress. It has
// few imports, so that it runs soon on a machine that has compiled nothing yet.
//
// Exit status: 0 all is built, 1 a build failed, 2 bad arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/programs"
)

const usage = `Builds the programs that a make target runs. Run it from the root of the repository.

  prepare controlplane      the local Kubernetes control plane, into the user cache directory
  prepare demo              the control plane, and the demo with its services into bin/
  prepare e2e FOLDER        the control plane, kubelet, kube-proxy, kubectl, helm, the command line and the test
                            of the chart on a real node
  prepare services FOLDER   every service and the command line
  prepare test FOLDER       all programs that the tests run, in FOLDER/plain, FOLDER/crashpoints
                            and FOLDER/helm, and their packages, with the race detector
`

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := os.Getwd()
	if err == nil {
		_, err = os.Stat("go.work")
	}
	if err != nil {
		fmt.Fprintln(stderr, "prepare: run this in the root of the repository:", err)
		return 2
	}
	batches, err := batchesOf(root, args)
	if err != nil {
		fmt.Fprintf(stderr, "prepare: %v\n\n%s", err, usage)
		return 2
	}
	fmt.Fprint(stderr, forecast(batches))
	err = gobuild.Builder{Progress: stderr}.Build(ctx, batches...)
	if err == nil && args[0] == "test" {
		err = gobuild.Builder{Progress: stderr}.Build(ctx, programs.Tests(root)) // what it compiles, no other needs
	}
	if err != nil {
		fmt.Fprintln(stderr, "prepare:", err)
		return 1
	}
	return 0
}

// forecast describes how long the build will take, and why.
func forecast(batches []gobuild.Batch) string {
	if !batches[0].Once || len(batches[0].Lacking()) == 0 {
		return ""
	}
	return "Building the local control plane: Kubernetes and the services of the project are compiled from\n" +
		"source once. With two idle cores this takes about ten minutes, and later runs start immediately.\n"
}

// batchesOf is what is built, in the order that lets the target run first.
func batchesOf(root string, args []string) ([]gobuild.Batch, error) {
	plane, err := controlplane.Builder{Root: root}.Batch()
	if err != nil {
		return nil, err
	}
	var target, folder string
	switch len(args) {
	case 2:
		target, folder = args[0], args[1]
		if folder, err = filepath.Abs(folder); err != nil {
			return nil, err
		}
	case 1:
		target = args[0]
	}
	switch {
	case target == "controlplane" && folder == "":
		return []gobuild.Batch{plane}, nil
	case target == "demo" && folder == "":
		return []gobuild.Batch{plane, programs.Demo(root, filepath.Join(root, "bin"))}, nil
	case target == "e2e" && folder != "":
		node, err := controlplane.Builder{Root: root}.NodeBatch()
		return []gobuild.Batch{plane, node, programs.Helm(root, folder), programs.E2E(root, folder)}, err
	case target == "services" && folder != "":
		return []gobuild.Batch{programs.Services(root, folder)}, nil
	case target == "test" && folder != "":
		return []gobuild.Batch{
			plane, programs.Services(root, filepath.Join(folder, "plain")), programs.CrashPoints(root, filepath.Join(folder, "crashpoints")),
			programs.Helm(root, folder),
		}, nil
	}
	return nil, fmt.Errorf("unexpected arguments %q", args)
}
