package janitor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// resendAfter is the janitor's in these tests.
const resendAfter = 10 * time.Second

// call is one signal in a ledger: when it came, and which boot the Node showed.
type call struct {
	key, boot string
	at        time.Time
	executed  bool
}

// ledger is a plugin that writes down every signal. With keys it executes each
// key once, as the contract asks; without it is the bare contract of ADR-017 and
// executes every call. A machine shows the effect of a call a while after it.
type ledger struct {
	v1.UnimplementedCSPPluginServiceServer
	cluster *localcluster.Cluster
	keys    bool
	// lost is how many calls get no answer and have no effect.
	lost int
	// killedAtRequest reports whether the janitor was killed at requestPoint.
	killedAtRequest bool

	mu       sync.Mutex
	calls    []call
	requests map[string]string // by key
	deleted  bool
	effects  sync.WaitGroup
}

// effectAfter is how long a machine takes to show that it was signaled. A janitor that
// comes back meanwhile asks for it.
const effectAfter = 2 * time.Second

// requestPoint is the point that a janitor does not pass which comes back later.
const requestPoint = "asked"

func (l *ledger) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	id, err := l.signal(ctx, q.GetNodeName(), q.GetIdempotencyKey(), func(count int) error {
		patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":"boot-%d"}}}`, count+1)
		_, err := l.cluster.Client().CoreV1().Nodes().Patch(context.Background(), q.GetNodeName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	return &v1.SendRebootSignalResponse{RequestId: id}, err
}

func (l *ledger) SendTerminateSignal(ctx context.Context, q *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	id, err := l.signal(ctx, q.GetNodeName(), q.GetIdempotencyKey(), func(int) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deleted = true
		return nil
	})
	return &v1.SendTerminateSignalResponse{RequestId: id}, err
}

func (l *ledger) IsNodeReady(context.Context, *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted {
		return nil, status.Error(codes.NotFound, "there is no such machine")
	}
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

func (l *ledger) signal(ctx context.Context, node, key string, effect func(count int) error) (string, error) {
	at := time.Now()
	n, err := l.cluster.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", status.Error(codes.Aborted, err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := call{key: key, boot: n.Status.NodeInfo.BootID, at: at}
	defer func() { l.calls = append(l.calls, c) }()
	if len(l.calls) < l.lost {
		return "", status.Error(codes.Unavailable, "nobody knows")
	}
	if id := l.requests[key]; l.keys && id != "" {
		return id, nil
	}
	c.executed = true
	count := len(l.calls) + 1
	l.requests[key] = fmt.Sprintf("request-%d", count)
	l.effects.Add(1)
	time.AfterFunc(effectAfter, func() {
		defer l.effects.Done()
		_ = effect(count)
	})
	return l.requests[key], nil
}

// killer runs a janitor again and again and counts how often it was killed.
type killer struct {
	mu     sync.Mutex
	killed int
}

// run keeps the janitor running until ctx ends.
func (k *killer) run(ctx context.Context, t *testing.T, binary string, env, args []string) {
	runtime.LockOSThread() // Pdeathsig is about the thread
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env = append(os.Environ(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		err := cmd.Run()
		if ctx.Err() != nil {
			return
		}
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Errorf("the janitor ended by itself: %v\n%s", err, &output)
			return
		}
		k.mu.Lock()
		k.killed++
		k.mu.Unlock()
	}
}

// TestKilledAtEachStep: the janitor is killed with SIGKILL at each of its steps.
// A plugin that honours the key executes it once. A plugin of the bare contract
// gets no second signal while the boot id is unchanged and less than resendAfter
// has passed, and never one after it changed.
func TestKilledAtEachStep(t *testing.T) {
	testkit.Long(t, "internal/reconciler's scripts die at each effect, and tests/journey kills the janitor")
	binary, err := testkit.Controller(t.TempDir(), "janitor")
	if err != nil {
		t.Fatal(err)
	}
	cluster := localcluster.ForTest(t, localcluster.Options{NodePrefix: "killed"})
	install(t, cluster)
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kinds", func() bool {
		return objects.List(t.Context(), &v1alpha1.RebootNodeList{}) == nil && objects.List(t.Context(), &v1alpha1.TerminateNodeList{}) == nil
	})
	before := []string{"observed", "decided", "intent-written", "claimed", "armed", "signal-sent"}
	after := map[string][]string{
		"RebootNode":    {requestPoint, "completed", "unclaimed"},
		"TerminateNode": {requestPoint, "node-deleted", "completed", "unclaimed"},
	}
	var killedAsking atomic.Bool
	for _, run := range []struct {
		name   string
		points []string
		lost   int
	}{
		{"at every step", before, 0},
		{"after the answer was written down", []string{"stamped"}, 0},
		{"when the first signal is lost", []string{"signal-sent"}, 1},
	} {
		for _, keys := range []bool{true, false} {
			// The two kinds side by side: a janitor works on all objects of its kind.
			t.Run(fmt.Sprintf("%s, keys %v", run.name, keys), func(t *testing.T) {
				var kinds sync.WaitGroup
				for kind := range after {
					points := run.points
					if run.lost == 0 && len(points) > 1 {
						points = append(append([]string(nil), points...), after[kind]...)
					}
					kinds.Go(func() {
						l := &ledger{cluster: cluster, keys: keys, lost: run.lost, requests: map[string]string{}}
						liveAndDie(t, binary, kind, points, l)
						if l.killedAtRequest {
							killedAsking.Store(true)
						}
					})
				}
				kinds.Wait()
			})
		}
	}
	if !killedAsking.Load() {
		t.Error("no janitor was killed when it had asked the plugin, in none of four lives")
	}
}

// liveAndDie carries out one object with a janitor that is killed once at each
// point, and looks into the ledger at the end.
func liveAndDie(t *testing.T, binary, kind string, points []string, l *ledger) {
	name := strings.ToLower(l.cluster.Namespace(t) + "-" + kind)
	if _, err := l.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-0"}); err != nil {
		t.Error(err)
		return
	}
	objects, err := reconciler.Objects(l.cluster.RESTConfig())
	if err != nil {
		t.Error(err)
		return
	}
	var object v1alpha1.Repair = &v1alpha1.RebootNode{Spec: v1alpha1.RebootNodeSpec{NodeName: name}}
	other := "terminateNodeController"
	if kind == "TerminateNode" {
		object, other = &v1alpha1.TerminateNode{Spec: v1alpha1.TerminateNodeSpec{NodeName: name}}, "rebootNodeController"
	}
	object.SetName(name)
	dir := t.TempDir()
	config := filepath.Join(dir, "janitor.toml")
	writeFile(t, config, []byte("["+other+"]\nenabled = false\n"))
	env := []string{"NVSENTINEL_CRASH=janitor/" + strings.Join(points, ",janitor/"), "NVSENTINEL_CRASH_ONCE=" + dir}
	args := []string{
		"--config", config, "--kubeconfig=" + l.cluster.AdminKubeconfig(), "--csp-plugin-host=" + serve(t, l), "--metrics-address=off", "--log-format=text",
		"--plugin-timeout=5s", "--resend-after=" + resendAfter.String(), "--poll-interval=200ms",
	}
	if err := objects.Create(t.Context(), object); err != nil {
		t.Error(err)
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	k := &killer{}
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx, t, binary, env, args) })
	defer func() { stop(); running.Wait(); l.effects.Wait() }()
	deadline := time.After(5 * time.Minute)
	for object.Progress().CompletionTime == nil || len(object.GetFinalizers()) > 0 || !killedAt(dir, points) {
		select {
		case <-deadline:
			t.Errorf("%s is not over after %d kills: %+v", name, k.kills(), object.Progress())
			return
		case <-time.After(50 * time.Millisecond):
		}
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Error(err)
			return
		}
	}
	l.killedAtRequest = slices.Contains(points, requestPoint) && marked(dir, requestPoint)
	l.audit(t, name, object)
}

// killedAt reports whether the janitor was killed at each point, as its marks show.
func killedAt(dir string, points []string) bool {
	return !slices.ContainsFunc(points, func(point string) bool {
		return point != requestPoint && !marked(dir, point)
	})
}

func marked(dir, point string) bool {
	_, err := os.Stat(filepath.Join(dir, "janitor_"+point))
	return err == nil
}

func (k *killer) kills() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// audit looks for what must not be in the ledger.
func (l *ledger) audit(t *testing.T, name string, object v1alpha1.Repair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	executed := 0
	for i, c := range l.calls {
		if c.executed {
			executed++
		}
		if c.key != string(object.GetUID()) || c.boot != "boot-0" {
			t.Errorf("%s: signal %d has key %s under boot %s, want key %s and boot-0", name, i, c.key, c.boot, object.GetUID())
		}
		if first := object.Progress().SignalSentAt.Time; i > 0 && c.at.Before(first.Add(resendAfter)) {
			t.Errorf("%s: signal %d came at %s, the first one at %s; want %s between them", name, i, c.at, first, resendAfter)
		}
	}
	if executed != 1 || len(l.calls) != 1+l.lost {
		t.Errorf("%s: %d of %d signals were executed, want 1 of %d", name, executed, len(l.calls), 1+l.lost)
	}
	for _, c := range object.Progress().Conditions {
		if c.Type == v1alpha1.ConditionSucceeded && c.Status != metav1.ConditionTrue {
			t.Errorf("%s: it ended as %s: %s", name, c.Reason, c.Message)
		}
	}
}
