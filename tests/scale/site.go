package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const (
	// namespace is that of the suite.
	namespace = "nvsentinel"
	// tokenLifetime is longer than any run.
	tokenLifetime = 24 * time.Hour
	// pollInterval is how often a condition is looked at.
	pollInterval = 20 * time.Millisecond
)

// ofCluster is the environment of etcd and the API server: etcd holds 100,000 pods and
// what they were before, of which it would refuse some by its default of 2 GiB, and the
// API server leaves the machine some memory. At 10,000 nodes it takes what it is given: all of
// 8 GiB, and most of 11.
var ofCluster = map[string]string{"ETCD_QUOTA_BACKEND_BYTES": "8589934592", "GOMEMLIMIT": "11GiB"}

// site is an API server with etcd, a database, and the folder of everything.
type site struct {
	o     Options
	nodes int
	dir   string

	cluster  *localcluster.Cluster
	client   kubernetes.Interface // the administrator's, in protobuf
	database *pgtest.Server
	store    store.Store

	cert, key string // of the gateways, for the loopback address

	running []*process
}

// newSite starts cluster and database and applies what the chart ships. A failed
// start leaves nothing behind.
func newSite(ctx context.Context, o Options, nodes int) (_ *site, err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return nil, err
	}
	s := &site{o: o, nodes: nodes, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as a user of its own
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.startCluster, s.startDatabase, s.applyManifests, s.aggregate, s.certify} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *site) startCluster(ctx context.Context) (err error) {
	for name, value := range ofCluster {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer os.Unsetenv(name)
	}
	if s.cluster, err = localcluster.Start(ctx, localcluster.Options{Progress: s.o.Progress}); err != nil {
		return err
	}
	config := s.cluster.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return nil
}

func (s *site) startDatabase(ctx context.Context) (err error) {
	if s.database, err = pgtest.Start(ctx, pgtest.Options{Dir: filepath.Join(s.dir, "postgresql"), Durable: true}); err != nil {
		return err
	}
	s.store, err = storeopen.Open(ctx, s.dsn(), storeopen.Options{SingleHost: true, Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (s *site) dsn() string { return s.database.DSN("postgres") }

// applyManifests applies the definitions, rights and policies of the chart, and a
// NodeHealthCheck of all nodes.
func (s *site) applyManifests(ctx context.Context) error {
	var files []string
	// The rights bring the namespace, without which nothing else can be applied.
	for _, pattern := range []string{"crds/*.yaml", "manifests/crds/*.yaml", "manifests/rbac.yaml", "manifests/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(s.chart(), pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	// Resets of GPUs need the namespace of the GPU services.
	files = slices.DeleteFunc(files, func(path string) bool {
		return slices.Contains([]string{"gpu-reset.yaml", "node-reboot.yaml"}, filepath.Base(path))
	})
	for _, path := range append(files, filepath.Join(s.o.Root, "examples/node-health-check/workers.yaml")) {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		err = s.cluster.Apply(ctx, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("applying %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// certify makes the gateways' certificate, which is its own authority.
func (s *site) certify(context.Context) error {
	s.cert, s.key = filepath.Join(s.dir, "tls.crt"), filepath.Join(s.dir, "tls.key")
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return fmt.Errorf("making the gateways' certificate: %w", err)
	}
	return errors.Join(os.WriteFile(s.cert, crt, 0o600), os.WriteFile(s.key, key, 0o600))
}

// launch starts a program, from the folder of services unless its path is absolute;
// it ends with the site.
func (s *site) launch(name, path string, args ...string) (*process, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.o.Bin, path)
	}
	p := &process{name: name, path: path, log: filepath.Join(s.dir, name+".log"), args: args}
	if err := p.start(); err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	return p, nil
}

// file writes a file of a service and returns its path.
func (s *site) file(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// until waits for a condition; a program that ends meanwhile is an error.
func (s *site) until(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, s.o.Sizes.Limit, true, func(ctx context.Context) (bool, error) {
		if err := allAlive(s.running); err != nil {
			return false, err
		}
		ok, err := cond(ctx)
		last = err
		return ok && err == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting for %s: %w", what, err), last)
	}
	return nil
}

// pause lets time pass; a program that ends meanwhile is an error.
func (s *site) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return allAlive(s.running)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// logs is the end of every log.
func (s *site) logs(w io.Writer, lines int) {
	for _, p := range s.running {
		fmt.Fprintf(w, "---- %s\n%s\n", p.name, tail(p.log, lines))
	}
}

// stop ends everything and removes every file.
func (s *site) stop() error {
	stopAll(s.running)
	var problems []error
	if s.store != nil {
		problems = append(problems, s.store.Close())
	}
	if s.database != nil {
		problems = append(problems, s.database.Stop())
	}
	if s.cluster != nil {
		problems = append(problems, s.cluster.Stop())
	}
	return errors.Join(append(problems, os.RemoveAll(s.dir))...)
}
