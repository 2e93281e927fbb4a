package janitor

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// slowCloud holds its first answer: the leader waits for it when it is frozen
// or killed. The signal has taken effect, or has not.
type slowCloud struct {
	cloud
	effect bool

	hit, release chan struct{}

	mu     sync.Mutex
	keys   []string
	leader int // the replica that sent the first signal
}

// entrance is the plugin as one replica sees it.
type entrance struct {
	*slowCloud
	replica int
}

func (e entrance) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	return e.signal(ctx, e.replica, req)
}

func (c *slowCloud) signal(ctx context.Context, replica int, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	c.mu.Lock()
	c.keys = append(c.keys, req.GetIdempotencyKey())
	first := len(c.keys) == 1
	if first {
		c.leader = replica
	}
	c.mu.Unlock()
	if !first {
		return c.SendRebootSignal(ctx, req)
	}
	var answer *v1.SendRebootSignalResponse
	err := status.Error(codes.Unavailable, "nobody knows")
	if c.effect {
		answer, err = c.SendRebootSignal(context.WithoutCancel(ctx), req)
	}
	close(c.hit)
	<-c.release
	return answer, err
}

func (c *slowCloud) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.keys...)
}

// pair is two replicas of the janitor, as processes that are started again when
// they end.
type pair struct {
	mu        sync.Mutex
	processes [2]*os.Process
	exits     [2]chan struct{}
}

func startPair(t *testing.T, args func(replica int) []string) *pair {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range 2 {
		p.exits[i] = make(chan struct{}, 100)
		running.Go(func() { p.keep(ctx, t, i, self, args(i)) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

// keep runs one replica again and again until ctx ends, which kills it.
func (p *pair) keep(ctx context.Context, t *testing.T, i int, self string, args []string) {
	runtime.LockOSThread() // Pdeathsig is about the thread
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Errorf("starting a replica: %v", err)
			return
		}
		p.mu.Lock()
		p.processes[i] = cmd.Process
		p.mu.Unlock()
		err := cmd.Wait()
		t.Logf("replica %d ended: %v", i, err)
		p.exits[i] <- struct{}{}
	}
}

func (p *pair) signal(t *testing.T, i int, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.processes[i].Signal(s); err != nil {
		t.Fatalf("sending %s: %v", s, err)
	}
}

// TestLeaderFrozenOrKilledInTheSignal: the leader is stopped while the plugin
// has its signal. The other replica takes over and sends nothing as long as the
// boot may still change; a signal that took effect is never sent twice, one that
// did not is sent again under the same key.
func TestLeaderFrozenOrKilledInTheSignal(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	for name, tt := range map[string]struct {
		signal syscall.Signal
		effect bool
		keys   int
	}{
		"frozen":            {syscall.SIGSTOP, true, 1},
		"killed":            {syscall.SIGKILL, true, 1},
		"killed-unanswered": {syscall.SIGKILL, false, 2},
	} {
		// One after the other: a janitor works on every RebootNode of its cluster.
		t.Run(name, func(t *testing.T) {
			impl := &slowCloud{cloud: cloud{cluster: cluster}, effect: tt.effect, hit: make(chan struct{}), release: make(chan struct{})}
			letGo := sync.OnceFunc(func() { close(impl.release) })
			defer letGo()
			takeOver(t, cluster, impl, tt.signal, letGo)
			keys := impl.sent()
			for _, k := range keys {
				if k != keys[0] {
					t.Errorf("signals with the keys %q, want one key", keys)
				}
			}
			if len(keys) != tt.keys || impl.signals.Load() != 1 {
				t.Errorf("%d signals, %d took effect; want %d and 1", len(keys), impl.signals.Load(), tt.keys)
			}
		})
	}
}

func takeOver(t *testing.T, cluster *localcluster.Cluster, impl *slowCloud, signal syscall.Signal, letGo func()) {
	t.Helper()
	name := cluster.Namespace(t)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	p := startPair(t, func(i int) []string {
		return []string{
			"--kubeconfig=" + cluster.AdminKubeconfig(), "--csp-plugin-host=" + serve(t, entrance{impl, i}), "--metrics-address=127.0.0.1:0", "--log-format=text",
			"--plugin-timeout=18s", "--resend-after=19s", "--poll-interval=1s", "--leader-elect", "--leader-elect-namespace=" + name,
			"--leader-elect-lease-duration=22s", "--leader-elect-renew-deadline=20s", "--leader-elect-retry-period=1s",
		}
	})
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootNodeSpec{NodeName: name}}
	if err := objects.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, "the signal", impl.hit)
	leader := impl.leader // written before hit was closed, and never again
	p.signal(t, leader, signal)
	eventually(t, "the reboot by the other replica", func() bool {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return object.Status.CompletionTime != nil && len(object.Finalizers) == 0
	})
	if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionNodeReady) {
		t.Errorf("conditions %v, want NodeReady", object.Status.Conditions)
	}
	before := object.ResourceVersion
	letGo()
	if signal == syscall.SIGSTOP {
		p.signal(t, leader, syscall.SIGCONT)
	}
	awaitClosed(t, "the end of the leader that was", p.exits[leader])
	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.ResourceVersion != before {
		t.Errorf("the leader that was wrote the finished object: %s, before %s, %v", object.ResourceVersion, before, err)
	}
}

func awaitClosed(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s did not come within three minutes", what)
	}
}
