package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
)

// serve runs the connectors until ctx ends or one of them does, and writes to out when they
// accept events.
func serve(ctx context.Context, s settings, out io.Writer) (err error) {
	f := &fleet{settings: s, failed: make(chan error, 1)}
	if s.identify {
		if f.registrar, err = newRegistrar(s); err != nil {
			return err
		}
	}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	fmt.Fprintln(out, "ready")
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.failed:
		return err
	}
}

// fleet is the connectors of this process.
type fleet struct {
	settings
	registrar *registrar // nil unless it identifies
	failed    chan error

	mu      sync.Mutex
	running []*daemon.Running
	ending  bool
}

// start starts all of them and returns when their sockets accept events.
func (f *fleet) start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.atOnce)
	for i := range f.nodes {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			node := f.name(i)
			if err := f.connector(ctx, node); err != nil {
				return fmt.Errorf("running the connector of %s: %w", node, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// connector starts one of them and waits for its socket.
func (f *fleet) connector(ctx context.Context, node string) error {
	if err := os.MkdirAll(filepath.Join(f.folder(node), "spool"), 0o755); err != nil {
		return err
	}
	if f.registrar != nil {
		if err := f.registrar.identify(ctx, node); err != nil {
			return err
		}
	}
	built := make(chan error, 1)
	args := append([]string{"--metrics-address=off", "--log-level=" + f.logLevel}, f.connectorArgs...)
	running := daemon.RunForTest(process{}, "node-connector", f.config(node), func(ctx context.Context, d *daemon.Daemon, cfg nodeconnector.Config) error {
		d.Log = d.Log.With("node", node)
		err := nodeconnector.Build(ctx, d, cfg)
		built <- err
		return err
	}, args...)
	f.mu.Lock()
	f.running = append(f.running, running)
	f.mu.Unlock()
	ended := make(chan int, 1)
	go func() {
		code := running.Wait()
		ended <- code
		f.reportExit(node, code)
	}()
	select {
	case err := <-built:
		return err
	case code := <-ended:
		return fmt.Errorf("connector exited with status %d", code)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reportExit reports a connector that ended by itself.
func (f *fleet) reportExit(node string, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending {
		return
	}
	select {
	case f.failed <- fmt.Errorf("the connector of %s exited with status %d", node, code):
	default: // another one was first
	}
}

// stop ends all of them, as a signal would each.
func (f *fleet) stop() {
	f.mu.Lock()
	f.ending = true
	running := f.running
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, r := range running {
		all.Go(func() { r.Stop() })
	}
	all.Wait()
}

// process is the one in which the connectors run.
type process struct{}

var _ daemon.TB = process{}

// Helper implements daemon.TB.
func (process) Helper() {}

// Cleanup implements daemon.TB: fleet.stop does it.
func (process) Cleanup(func()) {}

// Errorf implements daemon.TB.
func (process) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Output implements daemon.TB: where the connectors log.
func (process) Output() io.Writer { return os.Stderr }
