package e2e

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/nvidia/nvsentinel/internal/controlplane"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
)

// registry that the page's commands name, and the images have.
const registry = "registry.example.com"

// Options of a run.
type Options struct {
	// Root is the repository, Work a folder for everything, Bin that of helm and the
	// command line, Images that of the archives.
	Root, Work, Bin, Images string
	// Break is the image of a workload that is replaced by one that does nothing; the
	// run has to fail. Empty breaks none.
	Break string
	// Profile of the chart; empty is the chart's own.
	Profile string
	// Keep leaves everything running at the end, until the process is interrupted.
	Keep bool
	// Out hears what happens.
	Out io.Writer
}

// site is everything that the chart is installed upon.
type site struct {
	Options
	began   time.Time
	bins    controlplane.NodeBinaries
	cluster *localcluster.Cluster
	store   *pgtest.Server
	dsn     string // for pods, without the parameters for the verification of the server
	machine *machine
	rack    *rack
}

// log prints what happens, and when.
func (s *site) log(format string, args ...any) {
	fmt.Fprintf(s.Out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts all parts. They end with the namespaces that the process is in.
func start(ctx context.Context, o Options) (_ *site, err error) {
	s := &site{Options: o, began: time.Now()}
	builder := controlplane.Builder{Root: o.Root}
	if s.bins, err = builder.BuildNode(ctx); err != nil {
		return nil, err
	}
	if err := startNetwork(ctx); err != nil {
		return nil, err
	}
	s.cluster, err = localcluster.Start(ctx, localcluster.Options{
		Controllers: true, Address: address, Dir: filepath.Join(o.Work, "cluster"), Builder: builder,
	})
	if err != nil {
		return nil, err
	}
	s.log("API server, etcd, controllers and scheduler run")
	cert, err := s.cluster.Certificate(databaseName)
	if err != nil {
		return nil, err
	}
	if s.store, s.dsn, err = startStore(ctx, o.Work, cert); err != nil {
		return nil, err
	}
	s.log("PostgreSQL runs, with TLS")
	n := names{client: s.cluster.Client(), played: map[string]string{databaseName + ".": address, rackName + ".": address}}
	if err := n.serve(ctx); err != nil {
		return nil, err
	}
	if s.machine, err = startMachine(ctx, s, o.Images); err != nil {
		return nil, err
	}
	if cert, err = s.cluster.Certificate(registry); err != nil {
		return nil, err
	}
	if err := serveRegistry(ctx, cert); err != nil {
		return nil, err
	}
	s.rack = &rack{machine: s.machine, log: s.log}
	return s, s.rack.serve(ctx)
}
