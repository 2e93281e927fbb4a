package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/destination"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/nodeconnector"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// serve runs the connectors until ctx ends or one of them does, and says to out when they
// accept events.
func serve(ctx context.Context, s settings, out io.Writer) (err error) {
	f := &fleet{settings: s, failed: make(chan error, 1)}
	if s.store != "" {
		if f.store, err = openStore(ctx, s); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.store.Close()) }()
	}
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

// openStore opens the store that all connectors share.
func openStore(ctx context.Context, s settings) (store.Store, error) {
	address := s.store
	if u, err := url.Parse(address); err == nil && strings.HasPrefix(u.Scheme, "postgres") && !u.Query().Has("pool_max_conns") {
		q := u.Query()
		q.Set("pool_max_conns", strconv.Itoa(s.pool))
		u.RawQuery = q.Encode()
		address = u.String()
	}
	return storeopen.Open(ctx, address, storeopen.Options{
		SingleHost: true, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// fleet is the connectors of this process.
type fleet struct {
	settings
	store     store.Store // nil with gateways
	registrar *registrar  // nil unless it identifies
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
				return fmt.Errorf("the connector of %s: %w", node, err)
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
	args := append([]string{"--metrics-address=off", "--log-level=" + f.logLevel}, f.rest...)
	running := daemon.RunForTest(process{}, "node-connector", f.config(node), func(ctx context.Context, d *daemon.Daemon, cfg nodeconnector.Config) error {
		d.Log = d.Log.With("node", node)
		err := nodeconnector.Build(ctx, d, cfg, f.upstream(d, node))
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
		f.tellEnd(node, code)
	}()
	select {
	case err := <-built:
		return err
	case code := <-ended:
		return fmt.Errorf("it ended with status %d", code)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// upstream is where a node's records go.
func (f *fleet) upstream(d *daemon.Daemon, node string) nodeconnector.Upstream {
	return nodeconnector.Upstream{History: true, Open: func(context.Context, prometheus.Registerer) (destination.Destination, error) {
		if f.store != nil {
			return shared{destination.Direct{Store: f.store, Node: node}}, nil
		}
		return upstream.Open(f.way(node), d.Log)
	}}
}

// tellEnd tells of a connector that ended by itself.
func (f *fleet) tellEnd(node string, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending {
		return
	}
	select {
	case f.failed <- fmt.Errorf("the connector of %s ended with status %d", node, code):
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

// shared is the store as the destination of one of many connectors, which do not close
// it.
type shared struct{ destination.Direct }

// Close implements destination.Destination.
func (shared) Close() error { return nil }

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
