// Package lease lets one replica of a service act: leader election on a
// Kubernetes Lease, and a fence that ends before the lease can be another's.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// lostGrace is how long the work of a lost lease has to end. It is shorter than
// the time between the renew deadline and the end of the lease.
const lostGrace = 2 * time.Second

// lostError is the type of ErrLost.
type lostError struct{}

func (lostError) Error() string {
	return "the lease was lost: another replica may act now, so this process exits"
}

// Grace asks the daemon to shut down fast.
func (lostError) Grace() time.Duration { return lostGrace }

// ErrLost means that this process no longer leads: it has to exit, since what
// it does from now on may be done by another one too.
var ErrLost error = lostError{}

// candidate is a process that wants to lead one task.
type candidate struct {
	service, task string
	log           *slog.Logger
	registry      prometheus.Registerer
	// standing sets what readiness shows about who leads.
	standing func(string)
}

// Lead starts a task of the service that runs while this process leads, and at once
// when the election is off. The lease is named after the service and the task, and is
// looked for with the kubeconfig; empty is the pod's own account. A replica that stands
// by is ready. When the process stops, the lease is released after run has returned; a
// lost lease ends run's context, and the process (ErrLost).
func (c Config) Lead(d *daemon.Daemon, kubeconfig, task string, run func(ctx context.Context) error) {
	var detail atomic.Value
	detail.Store("no leader seen yet")
	identity := candidate{d.Name, task, d.Log, d.Registry, func(s string) { detail.Store(s) }}
	d.Ready(task+" lease", func() (bool, string) { return true, detail.Load().(string) }) //nolint:forcetypeassert // stored above
	d.Go(task, func(ctx context.Context) error {
		if !c.Enabled {
			identity.standing("leader election is off, this replica is active")
			return run(ctx)
		}
		client, err := kube.Connect(kube.Config{Kubeconfig: kubeconfig}, d.Name+"-lease")
		if err != nil {
			return err
		}
		return c.elect(ctx, client.Clientset, identity, run)
	})
}

// elect runs run while this process leads.
func (c Config) elect(ctx context.Context, client kubernetes.Interface, id candidate, run func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("naming this candidate: %w", err)
	}
	leading := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvsentinel_leader_election_is_leader", Help: "1 while this process holds the lease of the task, otherwise 0.",
		ConstLabels: prometheus.Labels{"task": id.task},
	})
	if err := id.registry.Register(leading); err != nil {
		return fmt.Errorf("registering the lease's metric: %w", err)
	}
	// A restarted container has the same host name and process id, and must not
	// take its predecessor's lease for its own.
	identity := host + "_" + string(uuid.NewUUID())
	lock := &fencedLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: id.service + "-" + slug(id.task)},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		clock: clock.RealClock{}, renewDeadline: c.RenewDeadline,
	}
	// The election outlives ctx: the lease is released only after the work ended.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	t := &term{parent: ctx, stop: stop, lock: lock, run: run, done: make(chan struct{})}
	defer context.AfterFunc(ctx, t.stopIdle)()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		// Not ReleaseOnCancel: it lets a lease go that could not be renewed in
		// time, while the work still runs.
		Name: id.service, Lock: lock,
		LeaseDuration: c.Duration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { id.standing("leading"); leading.Set(1); t.act(ctx) },
			OnStoppedLeading: func() { id.standing("not leading"); leading.Set(0) },
			OnNewLeader: func(leader string) {
				id.log.Info("leader observed", "task", id.task, "leader", leader, "self", leader == identity)
				if leader != identity {
					id.standing("standing by for " + leader)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the election: %w", err)
	}
	elector.Run(electing)
	if electing.Err() == nil {
		return t.lost()
	}
	started, err := t.result()
	if started {
		if release := lock.release(context.WithoutCancel(ctx)); release != nil {
			id.log.Warn("lease not released, it expires later", "task", id.task, "error", release)
		}
	}
	return err
}

// term is the one time that this process leads.
type term struct {
	parent context.Context
	stop   context.CancelFunc // ends the election and releases the lease
	lock   *fencedLock
	run    func(context.Context) error

	mu      sync.Mutex
	started bool
	done    chan struct{} // closed when run has returned
	err     error
}

// stopIdle ends the election of a process that does not lead.
func (t *term) stopIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started {
		t.stop()
	}
}

// act runs the work until it ends by itself, the parent ends or the lease is
// lost, which ends leading.
func (t *term) act(leading context.Context) {
	t.mu.Lock()
	t.started = true
	t.mu.Unlock()
	acting, cancel := context.WithCancel(context.WithValue(leading, fenceKey{}, t.lock))
	defer cancel()
	defer context.AfterFunc(t.parent, cancel)()
	if t.parent.Err() == nil {
		t.err = t.run(acting)
	}
	close(t.done)
	if leading.Err() == nil {
		t.stop()
	}
}

// lost waits for the work of a lost lease, but not for long.
func (t *term) lost() error {
	select {
	case <-t.done:
	case <-t.lock.clock.After(lostGrace):
	}
	return ErrLost
}

// result waits for the work, if it has started, and is its error.
func (t *term) result() (started bool, err error) {
	t.mu.Lock()
	started = t.started
	t.mu.Unlock()
	if !started {
		return false, nil
	}
	<-t.done
	return true, t.err
}

// slug makes a task's name fit for an object's name.
func slug(s string) string {
	out := []byte(s)
	for i, b := range out {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') {
			out[i] = '-'
		}
	}
	return string(out)
}

// Cluster is the part of a service's configuration that states how it reaches the API
// server and which of its replicas acts; it is embedded.
type Cluster struct {
	Kube  kube.Config `toml:"kube"`
	Lease Config      `toml:"leaderElection"`
}

// DefaultCluster is the pod's own account, without an election.
func DefaultCluster() Cluster { return Cluster{Lease: Default()} }

// Validate joins everything that is wrong.
func (c Cluster) Validate() error { return errors.Join(c.Kube.Validate(), c.Lease.Validate()) }

// Config of the election; Lead holds it.
type Config struct {
	_ struct{} `block:"Leader election" usage:"Settings of the Lease that selects the active replica"`

	// Enabled elects a leader among the replicas; without it this process acts at once.
	Enabled bool `toml:"enabled" flag:"leader-elect" usage:"If true, acts only while holding the lease, so that several replicas can run."`
	// Namespace holds the Lease object.
	Namespace string `toml:"namespace" flag:"leader-elect-namespace" usage:"Namespace of the lease."`
	// Duration is how long a lease lives without renewal.
	Duration time.Duration `toml:"leaseDuration" bounds:"above renewDeadline" enforced:"Validate" flag:"leader-elect-lease-duration" usage:"Time that a lease stays valid without renewal."`
	// RenewDeadline is when a leader that cannot renew stops acting.
	RenewDeadline time.Duration `toml:"renewDeadline" bounds:"above 2 retryPeriod" enforced:"Validate" flag:"leader-elect-renew-deadline" usage:"Time after which a leader that cannot renew its lease stops."`
	// RetryPeriod is between two attempts.
	RetryPeriod time.Duration `toml:"retryPeriod" bounds:"above 0s" flag:"leader-elect-retry-period" usage:"Interval between two attempts to acquire or renew the lease."`
}

// Default is off, with the durations that Kubernetes' own controllers use.
func Default() Config {
	return Config{Namespace: "nvsentinel", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate checks that a leader stops before its lease can be another's.
func (c Config) Validate() error {
	if !c.Enabled {
		return nil
	}
	var problems []error
	if c.Namespace == "" {
		problems = append(problems, errors.New("leaderElection.namespace is empty"))
	}
	if c.RenewDeadline <= 0 || c.Duration <= c.RenewDeadline {
		problems = append(problems, fmt.Errorf("leaderElection.leaseDuration %s must be longer than renewDeadline %s", c.Duration, c.RenewDeadline))
	}
	if c.RetryPeriod <= 0 || c.RenewDeadline <= 2*c.RetryPeriod {
		problems = append(problems, fmt.Errorf("leaderElection.renewDeadline %s must be longer than two retryPeriods %s", c.RenewDeadline, c.RetryPeriod))
	}
	return errors.Join(problems...)
}
