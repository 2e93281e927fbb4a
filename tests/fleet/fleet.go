// Package fleet runs the whole suite on this machine: a local control plane, a
// store, and every service as a supervised process under its own service
// account; for each node its own connector and monitor. The demo and the kill
// journey drive it.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Services are the services in the order of an event's walk. Every one but the
// per-node ones runs once.
func Services() []string {
	return []string{
		Monitor, Connector, Gateway, "fault-quarantine", "node-drainer", "fault-remediation", "janitor", "csp-plugin-kwok",
	}
}

// Gateway is between the connectors of the nodes and the store.
const Gateway = "platform-connectors-gateway"

// RepairChain runs where there are chains.
const RepairChain = "repair-chain"

// The per-node services.
const (
	Monitor   = "syslog-health-monitor"
	Connector = "platform-connectors"
)

// Options define what runs.
type Options struct {
	// Nodes is the number of simulated GPU nodes.
	Nodes int
	// Store is sqlite, postgresql or mongodb.
	Store string
	// StrategyOf is the processingStrategy of a node's monitor; nil is PROCESS.
	StrategyOf func(node string) string
	// Without is a service that is not started.
	Without string
	// Runs narrows further what is started (service name, node or empty); nil
	// starts everything. A node with no agent has no machine folder either.
	Runs func(service, node string) bool
	// Before is called when cluster and store are up and no service runs yet.
	Before func(context.Context, *Fleet) error
	// SettleTime and RebootTime are the monitors' and the simulated machines'.
	SettleTime, RebootTime time.Duration
	// JanitorFlags are added to the janitor's command line.
	JanitorFlags []string
	// PluginFlags are added to the provider plugin's.
	PluginFlags []string
	// QuarantineFlags are added to fault-quarantine's.
	QuarantineFlags []string
	// RemediationFlags are added to fault-remediation's.
	RemediationFlags []string
	// RemediationConfig is added to fault-remediation's file.
	RemediationConfig string
	// Chains are files of repair chains with their templates, which are applied before
	// any service runs; repair-chain is one of the services then.
	Chains []string
	// Publishers is a configuration of who may send what, for connectors and gateway;
	// empty is the built-in one.
	Publishers string
	// GatewayFlags are added to the gateway's.
	GatewayFlags []string
	// ConnectorFlags are added to every connector's.
	ConnectorFlags []string
	// Bin is the folder of the services' binaries.
	Bin string
	// Root is the repository.
	Root string
	// Replicas of every control service, of which one leads; 0 and 1 run one
	// without an election.
	Replicas int
	// Together runs the controllers of the control plane in one process.
	Together bool
	// Lease is how long a leader's lease lives without renewal.
	Lease time.Duration
	// Lines puts a Gate before the API server and, for PostgreSQL, a line that
	// can be cut before the database.
	Lines bool
	// Distance is what a round trip of the services to the server of the database
	// takes on its way; 0 is none.
	Distance time.Duration
	// Cold starts every service before the database has a schema.
	Cold bool
	// Env is added to the environment of a service (its name, its node or empty).
	Env func(name, node string) []string
	// Audit has the API server write down every request of the services, for
	// Cluster.Requests.
	Audit bool
	// Progress hears what takes long.
	Progress io.Writer
}

// Fleet is a running suite.
type Fleet struct {
	Cluster *localcluster.Cluster
	Store   store.Store
	Dir     string
	// DSN is the database as the services reach it.
	DSN string
	// Gate is nil without Options.Lines.
	Gate *Gate

	gatewayAddress string

	own      string // the database without a line before it
	line     *cutproxy.Proxy
	disks    []*Disk
	options  Options
	launcher *launcher
	kube     map[string]string // service account -> kubeconfig
	server   databaseServer
	dial     func(ctx context.Context) (net.Conn, error)

	together []string // flags of the process of all controllers, behind their names
	mu       sync.Mutex
	services map[string]*Service
	engines  map[string]*dcgmsim.Engine // simulated, by node
	kernels  map[string]*kernel         // by node
	cancel   context.CancelFunc
	watchers sync.WaitGroup
}

// Start brings everything up; a failed start leaves nothing behind.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	f := &Fleet{Dir: dir, options: o, launcher: newLauncher(), kube: map[string]string{}, services: map[string]*Service{}, engines: map[string]*dcgmsim.Engine{}, kernels: map[string]*kernel{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as a user of its own
		return nil, err
	}
	cluster := localcluster.Options{Controllers: true, Nodes: o.Nodes, NodePrefix: "gpu", Progress: o.Progress}
	if o.Audit {
		cluster.AuditNamespace = "nvsentinel"
	}
	f.Cluster, err = localcluster.Start(ctx, cluster)
	if err != nil {
		return nil, err
	}
	steps := []func(context.Context) error{f.database, f.openStore, f.applyManifests, f.accounts, f.before, f.gateway, f.control, f.nodes}
	if o.Cold {
		steps = []func(context.Context) error{f.database, f.applyManifests, f.accounts, f.before, f.gateway, f.control, f.nodes, f.openStore}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Fleet) before(ctx context.Context) error {
	if f.options.Before == nil {
		return nil
	}
	return f.options.Before(ctx, f)
}

// runs reports whether a service is to be started.
func (f *Fleet) runs(service, node string) bool {
	if f.options.Without == service || f.options.Runs == nil {
		return f.options.Without != service
	}
	if service == Gateway { // where the connector of any node runs
		return slices.ContainsFunc(f.NodeNames(), func(n string) bool { return f.options.Runs(Connector, n) })
	}
	return f.options.Runs(service, node)
}

// applyManifests applies the CRDs and the rights that the chart ships.
func (f *Fleet) applyManifests(ctx context.Context) error {
	var files []string
	// The rights bring the namespace, without which nothing else can be applied.
	for _, pattern := range []string{"crds/*.yaml", "manifests/rbac.yaml", "manifests/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(f.options.Root, "distros/helm/nvsentinel", pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	// Resets of GPUs, which no fleet does, need the namespace of the GPU services.
	files = slices.DeleteFunc(files, func(path string) bool {
		return slices.Contains([]string{"gpu-reset.yaml", "node-reboot.yaml"}, filepath.Base(path))
	})
	if len(files) == 0 {
		return fmt.Errorf("no manifests below %s", f.options.Root)
	}
	for _, path := range append(files, f.options.Chains...) {
		if err := f.applyFile(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) applyFile(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := f.Cluster.Apply(ctx, file); err != nil {
		return fmt.Errorf("applying %s: %w", filepath.Base(path), err)
	}
	return nil
}

func (f *Fleet) accounts(ctx context.Context) error {
	if f.options.Lines {
		gate, err := startGate(f.Cluster.RESTConfig(), filepath.Join(f.Cluster.Dir(), "pki"))
		if err != nil {
			return err
		}
		f.Gate = gate
	}
	for _, name := range f.accountNames() {
		path, err := f.Cluster.ServiceAccountKubeconfig(ctx, "nvsentinel", name, 24*time.Hour)
		if err != nil {
			return err
		}
		if f.Gate != nil {
			if path, err = f.Gate.through(path, f.Dir); err != nil {
				return err
			}
		}
		f.kube[name] = path
	}
	return nil
}

func (f *Fleet) accountNames() []string {
	names := []string{Gateway, "fault-quarantine", "node-drainer", "fault-remediation", "janitor", "csp-plugin-kwok"}
	if len(f.options.Chains) > 0 {
		names = append(names, RepairChain)
	}
	return names
}

// NodeNames lists the simulated nodes the fleet started with.
func (f *Fleet) NodeNames() []string {
	names := make([]string, f.options.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("gpu-%d", i)
	}
	return names
}

// launch starts a service under supervision, unless it is left out.
func (f *Fleet) launch(service, node, binary string, args ...string) {
	name := service
	if node != "" {
		name += "@" + node
	}
	f.launchAs(name, service, node, binary, args)
}

func (f *Fleet) launchAs(name, service, node, binary string, args []string) {
	if !f.runs(service, node) {
		return
	}
	var env []string
	if f.options.Env != nil {
		env = f.options.Env(name, node)
	}
	f.Launch(name, binary, args, env)
}

// Launch starts a further process under supervision, from the folder of the
// services' binaries unless its path is absolute; it ends with the fleet.
func (f *Fleet) Launch(name, binary string, args, env []string) *Service {
	if !filepath.IsAbs(binary) {
		binary = filepath.Join(f.options.Bin, binary)
	}
	s := f.launcher.supervise(name, binary, filepath.Join(f.Dir, name+".log"), args, env)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services[name] = s
	return s
}

// Service finds a running service: "janitor", "platform-connectors@gpu-3".
func (f *Fleet) Service(name string) *Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services[name]
}

// Services lists the running services by name.
func (f *Fleet) Services() []*Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*Service
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		out = append(out, f.services[name])
	}
	return out
}

// Logs is the end of every log that is not per node, and of the given node's.
func (f *Fleet) Logs(node string, lines int) string {
	var b strings.Builder
	for _, s := range f.Services() {
		if !strings.Contains(s.Name, "@") || strings.HasSuffix(s.Name, "@"+node) {
			fmt.Fprintf(&b, "---- %s (started %d times)\n%s\n", s.Name, s.Starts(), s.Tail(lines))
		}
	}
	return b.String()
}

// Stop ends every service and the cluster and removes every file.
func (f *Fleet) Stop() error {
	if f.cancel != nil {
		f.cancel()
	}
	f.watchers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range f.Services() {
		wg.Go(func() { s.Stop(ctx) })
	}
	wg.Wait()
	var problems []error
	if f.Store != nil {
		problems = append(problems, f.Store.Close())
	}
	if f.line != nil {
		problems = append(problems, f.line.Close())
	}
	if f.server != nil {
		problems = append(problems, f.server.Stop())
	}
	if f.Gate != nil {
		problems = append(problems, f.Gate.stop())
	}
	for node := range f.running() {
		problems = append(problems, f.endKernel(node))
	}
	for _, d := range f.disks {
		d.drop()
	}
	if f.Cluster != nil {
		problems = append(problems, f.Cluster.Stop())
	}
	return errors.Join(append(problems, os.RemoveAll(f.Dir))...)
}
