package faultremediation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// gate stands between one replica and the API server, and holds one request.
type gate struct {
	forward http.Handler
	fleet   *fleet
	replica int
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.fleet.take(g.replica, r) {
		g.forward.ServeHTTP(w, r)
		return
	}
	if !g.fleet.after {
		g.fleet.blockRequest()
		g.forward.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	g.forward.ServeHTTP(answer, r)
	g.fleet.blockRequest()
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// fleet is two replicas of the service, as processes that are started again
// when they end, and the request of theirs that is held once.
type fleet struct {
	*world
	// at is the request that is held; after is when it is held: false is before the API
	// server gets it, true when it has answered.
	at    func(*http.Request) bool
	after bool

	hit, release chan struct{}
	exits        [2]chan struct{}

	mu             sync.Mutex
	processes      [2]*os.Process
	blockedReplica int // the replica whose request was held; -1 before
}

// take reports whether a request is the one to hold.
func (f *fleet) take(replica int, r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blockedReplica >= 0 || !f.at(r) {
		return false
	}
	f.blockedReplica = replica
	return true
}

func (f *fleet) blockRequest() {
	close(f.hit)
	<-f.release
}

// signal sends a signal to the replica whose request is held, or to nobody if
// load has kept it from its lease and it has ended.
func (f *fleet) signal(s syscall.Signal) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.processes[f.blockedReplica].Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		f.t.Fatalf("sending %s: %v", s, err)
	}
}

// launch starts both replicas.
func (f *fleet) launch(t *testing.T, dsn string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	namespace := f.cluster.Namespace(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range 2 {
		args := []string{
			"--store=" + dsn, "--kubeconfig=" + f.proxy(t, i), "--metrics-address=127.0.0.1:0", "--log-format=text",
			"--leader-elect", "--leader-elect-namespace=" + namespace, "--leader-elect-lease-duration=12s",
			"--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s",
		}
		f.exits[i] = make(chan struct{}, 100)
		running.Go(func() { f.keep(ctx, t, i, self, args) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}

// keep runs one replica again and again until ctx ends, which kills it.
func (f *fleet) keep(ctx context.Context, t *testing.T, i int, self string, args []string) {
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
		f.mu.Lock()
		f.processes[i] = cmd.Process
		f.mu.Unlock()
		err := cmd.Wait()
		t.Logf("replica %d ended: %v", i, err)
		f.exits[i] <- struct{}{}
	}
}

// proxy is a way to the API server that only replica i uses, as a kubeconfig.
func (f *fleet) proxy(t *testing.T, i int) string {
	t.Helper()
	rc := f.cluster.RESTConfig()
	transport, err := rest.TransportFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(rc.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(&gate{forward: forward, fleet: f, replica: i})
	t.Cleanup(server.CloseClientConnections)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func creation(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/rebootnodes")
}

func marking(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodes/")
}

// TestLeaderFrozenOrKilled: the leader is frozen or killed in mid-decision: at
// the mark that precedes the creation, with the creation under way, or with its
// answer. The other replica takes over, and when the frozen one wakes up, and
// its request arrives after all, there is still exactly one object.
func TestLeaderFrozenOrKilled(t *testing.T) {
	testkit.Long(t, "internal/lease covers the election, the chaos test runs replicas")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	applyCRD(t, cluster)
	server := pgtest.Own(t, pgtest.Options{})
	for name, tt := range map[string]struct {
		at     func(*http.Request) bool
		after  bool
		signal syscall.Signal
	}{
		"frozen-before-the-mark":   {marking, false, syscall.SIGSTOP},
		"frozen-while-creating":    {creation, false, syscall.SIGSTOP},
		"frozen-before-the-answer": {creation, true, syscall.SIGSTOP},
		"killed-while-creating":    {creation, false, syscall.SIGKILL},
		"killed-before-the-answer": {creation, true, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, err := server.CreateDatabase(t.Context(), strings.ReplaceAll(name, "-", "_"))
			if err != nil {
				t.Fatal(err)
			}
			f := &fleet{
				world: &world{t: t, cluster: cluster}, at: tt.at, after: tt.after, blockedReplica: -1,
				hit: make(chan struct{}), release: make(chan struct{}),
			}
			f.takeOver(t, dsn, name, tt.signal)
		})
	}
}

// takeOver stops the leader with a signal at the held request, and follows the
// repair to its end.
func (f *fleet) takeOver(t *testing.T, dsn, node string, signal syscall.Signal) {
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	f.records = records
	f.launch(t, dsn)
	letGo := sync.OnceFunc(func() { close(f.release) })
	t.Cleanup(letGo)
	f.addNode(node)
	f.drainedFault("r-"+node, node)
	await(t, "the leader's request", f.hit)
	f.signal(signal)
	f.waitForRecord("r-"+node, "the other replica takes over", func(s record.Status) bool {
		return s.Remediation != nil && s.Remediation.Attempts[0].UID != ""
	})
	letGo()
	if signal == syscall.SIGSTOP {
		f.signal(syscall.SIGCONT)
	}
	await(t, "the end of the leader that was", f.exits[f.blockedReplica])
	f.reboot(f.waitForObject(node))
	f.waitForRecord("r-"+node, "the reboot is recorded", func(s record.Status) bool { return record.Remediated(s) == "true" })
	f.onlyOne(node)
}

// onlyOne wants one object of a node, in one attempt.
func (f *fleet) onlyOne(node string) {
	f.t.Helper()
	list, err := f.cluster.Dynamic().Resource(rebootNodes).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), node+"-") {
			names = append(names, o.GetName()+" "+string(o.GetUID()))
		}
	}
	r, err := f.records.Get(f.t.Context(), "r-"+node)
	if err != nil {
		f.t.Fatal(err)
	}
	attempts := r.Status.Remediation.Attempts
	if len(names) != 1 || len(attempts) != 1 || names[0] != attempts[0].Name+" "+attempts[0].UID {
		f.t.Errorf("objects %q, attempts %+v; want one of each", names, attempts)
	}
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s did not come within three minutes", what)
	}
}
