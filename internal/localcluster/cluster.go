package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/nvidia/nvsentinel/internal/controlplane"
)

// portAttempts is how often Start begins again when another process took a port it had chosen.
const portAttempts = 3

// Options describe what a cluster consists of. The zero value is etcd and kube-apiserver alone.
type Options struct {
	// Controllers adds kube-controller-manager, kube-scheduler and kwok, so that pods are made,
	// placed and run. Without them nodes are objects that are Ready from the start, and pods stay
	// as they were created.
	Controllers bool
	// Nodes is how many simulated GPU nodes to begin with; they are named NodePrefix-0 and so on.
	Nodes int
	// NodePrefix begins the names of nodes; empty means "gpu".
	NodePrefix string
	// Address is where the API server serves, one of this machine's; empty is loopback. Pods of a
	// real node reach it there as the Service kubernetes.
	Address string
	// AuditNamespace is whose service accounts' requests the API server writes down, for
	// Cluster.Requests; empty is nobody's.
	AuditNamespace string
	// Progress receives what takes long; nil discards it.
	Progress io.Writer
	// Dir holds certificates, data and logs. It must not exist or be empty, and is removed by
	// Stop; empty means a new temporary folder.
	Dir string
	// Builder builds the programs that the cache lacks; its Progress defaults to Progress.
	Builder controlplane.Builder
}

// Cluster is a running control plane. Its methods may be called from several goroutines.
type Cluster struct {
	options  Options
	dir      string
	bins     controlplane.Binaries
	id       *identity
	progress *progressWriter
	nursery  *nursery
	keeper   *keeper
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	mapper   meta.ResettableRESTMapper // kinds to resources, as far as the API server was asked for them

	mu        sync.Mutex
	processes []*process
	api       *process
	stopped   bool

	failed   chan struct{}
	failOnce sync.Once
	failure  error // valid once failed is closed

	stopOnce sync.Once
	stopErr  error
}

// Start builds what the cache lacks, starts the control plane and waits until it is usable: the
// API server ready and, with controllers, every node Ready and schedulable. A failed or cancelled
// Start leaves no process and no file.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.NodePrefix == "" {
		options.NodePrefix = "gpu"
	}
	if options.Address == "" {
		options.Address = localhost
	}
	if options.Builder.Progress == nil {
		options.Builder.Progress = options.Progress
	}
	build := options.Builder.BuildAPI
	if options.Controllers {
		build = options.Builder.Build
	}
	bins, err := build(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, options, bins)
		if err == nil {
			return c, nil
		}
		if attempt == portAttempts || !strings.Contains(err.Error(), "address already in use") {
			return nil, fmt.Errorf("starting a local cluster: %w", err)
		}
	}
}

// start makes one attempt with freshly chosen ports.
func start(ctx context.Context, options Options, bins controlplane.Binaries) (_ *Cluster, err error) {
	dir, err := makeDir(options.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		options: options, dir: dir, bins: bins,
		progress: newProgressWriter(options.Progress), nursery: newNursery(), failed: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.keeper, err = startKeeper(dir); err != nil {
		return nil, err
	}
	if c.id, err = newIdentity(ctx, dir, options.Address); err != nil {
		return nil, err
	}
	if c.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("creating a dynamic client: %w", err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	finished := c.progress.task("starting the control plane")
	err = c.bringUp(ctx)
	finished(err)
	return c, err
}

// makeDir makes the cluster's folder, which must be its own since Stop removes it.
func makeDir(dir string) (string, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("", "local-cluster-")
		if err != nil {
			return "", fmt.Errorf("creating a folder: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("creating a folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("creating a folder: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("creating a folder: %s is not empty", dir)
	}
	return dir, nil
}

// bringUp starts the parts in the order they need each other.
func (c *Cluster) bringUp(ctx context.Context) error {
	if _, err := c.run(c.bins.Etcd, c.id.etcdFlags(c.dir)); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if c.options.Controllers {
		if err := c.startControllers(); err != nil {
			return err
		}
	}
	for _, namespace := range []string{metav1.NamespaceDefault, corev1.NamespaceNodeLease} { // the API server makes them
		if err := c.waitForPodsAllowed(ctx, namespace); err != nil {
			return err
		}
	}
	return c.addFirstNodes(ctx)
}

func (c *Cluster) startControllers() error {
	kwok, err := c.id.kwokFlags(c.dir)
	if err != nil {
		return err
	}
	if _, err := c.run(c.bins.ControllerManager, c.id.controllerFlags()); err != nil {
		return err
	}
	if _, err := c.run(c.bins.Scheduler, c.id.schedulerFlags()); err != nil {
		return err
	}
	_, err = c.run(c.bins.Kwok, kwok)
	return err
}

// run starts one part; its unasked end fails the cluster.
func (c *Cluster) run(path string, args []string) (*process, error) {
	name := filepath.Base(path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("starting %s: the cluster is stopped", name)
	}
	p, err := c.nursery.spawn(name, path, c.logFile(name), args, func(p *process) { c.fail(p.err) })
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	return p, nil
}

func (c *Cluster) logFile(name string) string { return filepath.Join(c.dir, name+".log") }

func (c *Cluster) fail(err error) {
	c.failOnce.Do(func() {
		c.failure = err
		close(c.failed)
	})
}

// Failed is closed when a part of the cluster ended although nobody asked it to.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Failure returns which part ended unasked, with the end of its log; nil while all is well.
func (c *Cluster) Failure() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// Dir is the folder of certificates, data and logs (one <part>.log each).
func (c *Cluster) Dir() string { return c.dir }

// Client is the administrator's client.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Dynamic is the administrator's client for kinds without Go types.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// StopAPIServer kills the API server, as an outage would; the rest goes on.
func (c *Cluster) StopAPIServer() {
	c.mu.Lock()
	p := c.api
	c.api = nil
	c.mu.Unlock()
	if p != nil {
		p.stop()
	}
}

// StartAPIServer starts the API server under the address it had before and waits until it is
// ready. It does nothing when the server runs.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	running := c.api != nil
	c.mu.Unlock()
	if running {
		return nil
	}
	audit, err := c.auditFlags()
	if err != nil {
		return err
	}
	p, err := c.run(c.bins.APIServer, append(c.id.apiServerFlags(c.dir, c.options.Controllers), audit...))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.api = p
	c.mu.Unlock()
	return c.waitForAPI(ctx)
}

// Stop kills every process of the cluster and removes its folder. Further calls return the same.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		c.mu.Lock()
		processes := c.processes
		c.stopped, c.api = true, nil
		c.mu.Unlock()
		for _, p := range slices.Backward(processes) {
			p.stop()
		}
		c.nursery.close()
		if c.keeper != nil {
			c.keeper.dismiss()
		}
		if err := os.RemoveAll(c.dir); err != nil {
			c.stopErr = fmt.Errorf("removing the cluster's folder: %w", err)
		}
	})
	return c.stopErr
}
