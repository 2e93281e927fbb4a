package cloudtest

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// testTimeout is what no working program needs.
const testTimeout = 2 * time.Minute

// Conformance tries what every plugin promises.
func Conformance(t *testing.T, p Plugin) {
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := newWorld(t, p)
		return &plugintest.Bench{
			Conn: w.start(t), Node: w.node("a"), Other: w.node("b"), Missing: w.node("c"),
			BootID: w.bootID,
			Reboots: func(_ *testing.T, node string) int {
				reboots, _ := w.cloud.OperationCounts(w.machines[node])
				return reboots
			},
			Claim: func(t *testing.T, node string) string {
				machine := w.machines[node]
				return w.claim(t, "claimant", machine, w.addresses[machine])
			},
			Restart:       func(t *testing.T) grpc.ClientConnInterface { w.kill(t); return w.start(t) },
			RebootTimeout: testTimeout,
		}
	})
}

// caller speaks to a plugin that may die.
type caller struct {
	*world
	v1.CSPPluginServiceClient
}

func (w *world) call(t *testing.T) *caller {
	t.Helper()
	return &caller{w, v1.NewCSPPluginServiceClient(w.start(t))}
}

func (c *caller) signal(ctx context.Context, terminate bool, node, key string) (string, error) {
	if terminate {
		a, err := c.SendTerminateSignal(ctx, &v1.SendTerminateSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
		return a.GetRequestId(), err
	}
	a, err := c.SendRebootSignal(ctx, &v1.SendRebootSignalRequest{NodeName: node, IdempotencyKey: key}, grpc.WaitForReady(true))
	return a.GetRequestId(), err
}

func (c *caller) ready(t *testing.T, node, request string) (bool, error) {
	a, err := c.IsNodeReady(t.Context(), &v1.IsNodeReadyRequest{NodeName: node, RequestId: request}, grpc.WaitForReady(true))
	return a.GetIsReady(), err
}

// until waits for something that a working program does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	over := false
	defer func() {
		if !over {
			t.Logf("it was waited for: %s", what)
		}
	}()
	testkit.Until(t, testTimeout, ok)
	over = true
}

// Kills kills the plugin at each request that it sends the cloud for a signal, once
// before the request takes effect and once after it. The same key, sent again to
// the plugin that was started again, ends in one reboot or termination.
func Kills(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	for _, terminate := range []bool{false, true} {
		for _, when := range []blow{before, after} {
			for n := 1; ; n++ {
				seen := 0
				at := func(*http.Request) bool { seen++; return seen == n }
				if killed := w.killAt(t, w.node(fmt.Sprintf("k%v%d-%d", terminate, when, n)), at, when, terminate); !killed {
					if n < 3 {
						t.Errorf("the plugin asked the cloud %d times for a signal, want more", n-1)
					}
					break
				}
			}
		}
	}
}

// KillsAtTheSignal is Kills at the one request that changes something, once it has
// taken effect.
func KillsAtTheSignal(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	for _, terminate := range []bool{false, true} {
		at := func(r *http.Request) bool { return r.Method != http.MethodGet }
		if !w.killAt(t, w.node(fmt.Sprintf("s%v", terminate)), at, after, terminate) {
			t.Error("it changed nothing")
		}
	}
}

// killAt kills the plugin at a request of a signal to a machine of its own.
func (w *world) killAt(t *testing.T, node string, at func(*http.Request) bool, when blow, terminate bool) (killed bool) {
	t.Helper()
	w.add(t, node, w.cloud.Add(node, ""))
	c := w.call(t)
	// Its first look with its credentials is over.
	until(t, "the plugin looked at the cloud", func() bool { ok, _ := w.readyz(t); return ok })
	w.mu.Lock()
	w.strike = func(r *http.Request) blow {
		if !killed && at(r) {
			killed = true
			return when
		}
		return none
	}
	w.mu.Unlock()
	id, err := c.signal(t.Context(), terminate, node, "key of "+node)
	w.mu.Lock()
	w.strike = nil
	hit := killed
	w.mu.Unlock()
	if hit && err == nil {
		t.Error("the answer came from a dead plugin")
	}
	w.kill(t)
	if reboots, _ := w.cloud.OperationCounts(w.machines[node]); w.plugin.NoRequestIDs && reboots > 0 {
		until(t, "the reboot shows", func() bool { return w.bootID(t, node) != "boot-0" })
	}
	c = w.call(t)
	until(t, "the same key is taken", func() bool {
		id, err = c.signal(t.Context(), terminate, node, "key of "+node)
		return err == nil
	})
	until(t, "the end of the signal", func() bool {
		ready, err := c.ready(t, node, id)
		return terminate && status.Code(err) == codes.NotFound || !terminate && ready
	})
	reboots, terminations := w.cloud.OperationCounts(w.machines[node])
	if want := map[bool][2]int{false: {1, 0}, true: {0, 1}}[terminate]; want != [2]int{reboots, terminations} {
		t.Errorf("killed %v a request, termination %v: %d reboots and %d terminations", when, terminate, reboots, terminations)
	}
	w.kill(t)
	return hit
}

// Operations tries that a reboot is over only when its Node shows another boot and
// the cloud's own operation is over, and that a failed one is reported.
func Operations(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	c := w.call(t)
	for pace, want := range map[Pace]func(ready bool, err error) bool{
		Soon:      func(ready bool, err error) bool { return ready && err == nil },
		Forgotten: func(ready bool, err error) bool { return ready && err == nil },
		Failing:   func(_ bool, err error) bool { return status.Code(err) == codes.FailedPrecondition },
	} {
		node := w.node("operation-" + string(pace) + "x")
		w.add(t, node, w.cloud.Add(node, ""))
		w.cloud.Pace(Held)
		id, err := c.signal(t.Context(), false, node, "key of "+node)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "another boot", func() bool { return w.bootID(t, node) != "boot-0" })
		for range 3 {
			if ready, err := c.ready(t, node, id); ready || err != nil {
				t.Errorf("while the operation goes on: %v, %v; want not ready", ready, err)
			}
		}
		w.cloud.Pace(pace)
		until(t, "the operation is "+string(pace)+" over", func() bool {
			ready, err := c.ready(t, node, id)
			if !want(ready, err) && (ready || err != nil) {
				t.Fatalf("an operation that is %q: %v, %v", pace, ready, err)
			}
			return want(ready, err)
		})
	}
}

// RetryAfter is the delay that an answer asks for.
func RetryAfter(err error) (wait time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait = info.GetRetryDelay().AsDuration()
		}
	}
	return wait
}

// Readiness tries that the plugin reports whether its credentials are good.
func Readiness(t *testing.T, p Plugin) {
	w := newWorld(t, p)
	w.call(t)
	detail := ""
	until(t, "ready", func() (ok bool) { ok, detail = w.readyz(t); return ok })
	if !strings.Contains(detail, "verification as the machine of the node is proven by "+p.Kinds[0]) {
		t.Errorf("it does not say whether the node is verified: %s", detail)
	}
	w.kill(t)
	w.cloud.Revoke()
	w.call(t)
	until(t, "not ready for want of credentials", func() bool {
		ok, detail := w.readyz(t)
		if ok {
			t.Fatalf("it is ready without credentials: %s", detail)
		}
		return strings.Contains(detail, "Unauthenticated")
	})
}

// VerifyReadiness tries how many machines that the cloud does not show the plugin asks
// about before it is not ready. It is for a cloud that does not distinguish a machine
// that is gone from one that the plugin may not see.
func VerifyReadiness(t *testing.T, p Plugin, unknown func(n int) (machine string)) {
	w := newWorld(t, p)
	for n := range 5 {
		w.add(t, w.node(fmt.Sprintf("0%d", n)), unknown(n)) // before the others
		if n < 3 {
			continue
		}
		w.call(t)
		until(t, "it has looked", func() bool {
			ok, detail := w.readyz(t)
			if !strings.Contains(detail, "machine") {
				return false // not yet
			}
			if ok != (n == 3) {
				t.Errorf("with %d machines that the cloud says nothing of: ready %v, %s", n+1, ok, detail)
			}
			return true
		})
		w.kill(t)
	}
}

// readyz asks the plugin that was started last.
func (w *world) readyz(t *testing.T) (ok bool, detail string) {
	t.Helper()
	found := serving.FindStringSubmatch(w.output.String()[w.mark:])
	if found == nil {
		return false, ""
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+found[1]+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode == http.StatusOK, fmt.Sprint(string(body), err)
}

func writeCertificate(t *testing.T, path string, server *httptest.Server) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Recreated tries a cloud that makes a new machine under the name of one that was
// terminated, at once: the old one is gone when its operation is over, while the
// Node still shows its boot. A Node that shows another boot is the new machine's,
// and no leftover.
func Recreated(t *testing.T, p Plugin, recreate func(c Cloud, machine string)) {
	w := newWorld(t, p)
	c := w.call(t)
	node, machine := w.node("a"), w.machines[w.node("a")]
	recreate(w.cloud, machine)
	id, err := c.signal(t.Context(), true, node, "k1")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the machine is not found", func() bool {
		_, err := c.ready(t, node, id)
		if code := status.Code(err); code != codes.OK && code != codes.NotFound {
			t.Fatalf("meanwhile: %v", err)
		}
		return err != nil
	})
	w.patch(t.Context(), t, node, `{"status":{"nodeInfo":{"bootID":"boot-of-the-new-one"}}}`)
	if _, err := c.ready(t, node, id); err != nil {
		t.Errorf("once the new machine has the Node: %v, want no error", err)
	}
	if again, err := c.signal(t.Context(), true, node, "k1"); err != nil || again != id {
		t.Errorf("the same key: %q, %v; want %q", again, err, id)
	}
	if _, terminations := w.cloud.OperationCounts(machine); terminations != 1 {
		t.Errorf("%d terminations, want 1", terminations)
	}
}
