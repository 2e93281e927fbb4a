package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/controlplane"
)

// request is a parsed command line.
type request struct {
	nodes   int
	prefix  string
	state   string
	detach  bool
	kubectl bool
}

// dispatch parses a command line and runs its command.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, help)
		return fmt.Errorf("%w: no command given", errUsage)
	}
	name, args := args[0], args[1:]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		fmt.Fprint(stdout, help)
		return nil
	}
	req, err := parse(name, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return nil
	}
	if err != nil {
		return err
	}
	switch name {
	case "up":
		if req.detach {
			return detach(ctx, req, stdout, stderr)
		}
		return up(ctx, req, stdout, stderr)
	case superviseCommand:
		return supervise(ctx, req)
	case "down":
		return down(ctx, req.state, stderr)
	case "status":
		return status(req.state, stdout)
	case "kubeconfig":
		return kubeconfig(req.state, stdout)
	default:
		return build(ctx, req.kubectl, stdout, stderr)
	}
}

// parse reads the flags that the named command knows.
func parse(name string, args []string) (request, error) {
	var req request
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	withState := func() { flags.StringVar(&req.state, "state", "", "") }
	switch name {
	case "up", superviseCommand:
		withState()
		flags.IntVar(&req.nodes, "nodes", 3, "")
		flags.StringVar(&req.prefix, "prefix", "gpu", "")
		flags.BoolVar(&req.detach, "detach", false, "")
	case "down", "status", "kubeconfig":
		withState()
	case "build":
		flags.BoolVar(&req.kubectl, "kubectl", false, "")
	default:
		return request{}, fmt.Errorf("%w: unknown command %q, see local-cluster --help", errUsage, name)
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return request{}, err
		}
		return request{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return request{}, fmt.Errorf("%w: unexpected argument %q", errUsage, flags.Arg(0))
	}
	if req.nodes < 0 {
		return request{}, fmt.Errorf("%w: --nodes %d is negative", errUsage, req.nodes)
	}
	var err error
	req.state, err = stateDir(req.state)
	return req, err
}

// stateDir is the absolute folder of a cluster's state.
func stateDir(given string) (string, error) {
	if given != "" {
		dir, err := filepath.Abs(given)
		if err != nil {
			return "", fmt.Errorf("finding the state directory: %w", err)
		}
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the state directory: %w", err)
	}
	return filepath.Join(cache, "nvsentinel", "local-cluster"), nil
}

func status(dir string, stdout io.Writer) error {
	s, err := running(dir)
	if err != nil {
		return err
	}
	if s.Kubeconfig == "" {
		fmt.Fprintf(stdout, "starting: process %d\n", s.PID)
		return nil
	}
	fmt.Fprintf(stdout, "running: process %d, nodes %s-0 to %s-%d, folder %s\nkubeconfig: %s\n",
		s.PID, s.Prefix, s.Prefix, s.Nodes-1, s.Dir, s.Kubeconfig)
	return nil
}

func kubeconfig(dir string, stdout io.Writer) error {
	s, err := running(dir)
	if err != nil {
		return err
	}
	if s.Kubeconfig == "" {
		return fmt.Errorf("%w yet: process %d is starting it", errNoCluster, s.PID)
	}
	fmt.Fprintln(stdout, s.Kubeconfig)
	return nil
}

func build(ctx context.Context, kubectl bool, stdout, stderr io.Writer) error {
	builder := controlplane.Builder{Progress: stderr}
	if _, err := builder.Build(ctx); err != nil {
		return err
	}
	if !kubectl {
		return nil
	}
	path, err := builder.BuildKubectl(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, path)
	return nil
}
