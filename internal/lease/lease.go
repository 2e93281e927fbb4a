// Package lease lets one replica of a service act: leader election on a
// Kubernetes Lease, and a fence that ends before the lease can be another's.
package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Config of the election.
type Config struct {
	// Enabled elects a leader among the replicas; without it this process acts at once.
	Enabled bool `toml:"enabled" flag:"leader-elect" usage:"act only while holding a lease, so that several replicas can run"`
	// Namespace holds the Lease object.
	Namespace string `toml:"namespace" flag:"leader-elect-namespace" usage:"namespace of the lease"`
	// Duration is how long a lease lives without renewal.
	Duration time.Duration `toml:"leaseDuration" flag:"leader-elect-lease-duration" usage:"how long a lease lives without renewal"`
	// RenewDeadline is when a leader that cannot renew stops acting.
	RenewDeadline time.Duration `toml:"renewDeadline" flag:"leader-elect-renew-deadline" usage:"when a leader that cannot renew its lease stops"`
	// RetryPeriod is between two attempts.
	RetryPeriod time.Duration `toml:"retryPeriod" flag:"leader-elect-retry-period" usage:"time between two attempts to take or renew the lease"`
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

// ErrLost means that this process no longer leads: it has to exit, since what
// it does from now on may be done by another one too.
var ErrLost = errors.New("the lease was lost")

// Elect runs run while this process leads, and at once when the election is off.
func (c Config) Elect(ctx context.Context, who daemon.Candidate, standing func(string), run func(context.Context) error) error {
	if !c.Enabled {
		standing("no election: this is the only replica")
		return run(ctx)
	}
	client, err := kube.Connect(kube.Config{Kubeconfig: who.Kubeconfig}, who.Service+"-lease")
	if err != nil {
		return err
	}
	return c.elect(ctx, client.Clientset, who, standing, run)
}

func (c Config) elect(ctx context.Context, client kubernetes.Interface, who daemon.Candidate, standing func(string), run func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("naming this candidate: %w", err)
	}
	identity := fmt.Sprintf("%s_%d", host, os.Getpid())
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var once sync.Once
	end := func(err error) { once.Do(func() { result <- err; cancel() }) }
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: who.Service, ReleaseOnCancel: false,
		LeaseDuration: c.Duration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: who.Service + "-" + slug(who.Name)},
			Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { standing("leading"); end(run(leading)) },
			OnStoppedLeading: func() { standing("not leading") },
			OnNewLeader: func(leader string) {
				if leader != identity {
					standing("standing by for " + leader)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the election: %w", err)
	}
	elector.Run(ctx)
	select {
	case err := <-result:
		return err
	default:
	}
	if ctx.Err() != nil {
		return nil
	}
	return ErrLost
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
