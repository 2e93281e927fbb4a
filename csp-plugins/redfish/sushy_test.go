package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/pythonenv"
	"github.com/nvidia/nvsentinel/internal/freeport"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// emulator is the BMC of sushy-tools, a service that nobody here wrote, behind a
// proxy that speaks TLS, counts the resets that were taken, and loses answers.
type emulator struct {
	url   string
	proxy *httptest.Server

	mu     sync.Mutex
	resets map[string]int // by system
	lose   int            // answers to resets that get lost
}

// spare is a further machine of the emulator.
const spare = "22222222-2222-2222-2222-222222222222"

// emulate starts the emulator with the machines of a world.
func emulate(t *testing.T, w *world) *emulator {
	t.Helper()
	bin := pythonenv.Programs(t, "redfish-emulator.sh")
	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hash, err := exec.CommandContext(t.Context(), filepath.Join(bin, "python"), "-c", "import bcrypt; print(bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode())").Output()
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "htpasswd", "operator:"+string(hash))
	var systems []string
	machines := maps.Clone(w.uuids)
	machines["spare"] = spare
	for node, id := range machines {
		systems = append(systems, fmt.Sprintf("{'uuid': '%s', 'name': '%s', 'power_state': 'On', 'external_notifier': False, 'nics': []}", id, node))
	}
	w.write(t, "emulator.py", fmt.Sprintf("SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = %d\nSUSHY_EMULATOR_AUTH_FILE = '%s'\nSUSHY_EMULATOR_STATE_DIR = '%s'\nSUSHY_EMULATOR_FAKE_SYSTEMS = [%s]\n",
		port, filepath.Join(w.dir, "htpasswd"), w.dir, strings.Join(systems, ", ")))
	e := &emulator{url: fmt.Sprintf("http://127.0.0.1:%d", port), resets: map[string]int{}}
	pythonenv.Serve(t, e.url+"/redfish/v1/", exec.Command(filepath.Join(bin, "sushy-emulator"), "--config", filepath.Join(w.dir, "emulator.py"), "--fake"))
	target, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	e.proxy = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { e.forward(t, w, proxy, rw, r) }))
	t.Cleanup(e.proxy.Close)
	for node, id := range w.uuids {
		w.bmc(t, node, e.proxy, fmt.Sprintf("system = %q", id))
	}
	return e
}

// forward lets a request through, and a machine that was reset show another boot
// id once the emulator reports that it is on again.
func (e *emulator) forward(t *testing.T, w *world, proxy http.Handler, rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		proxy.ServeHTTP(rw, r)
		return
	}
	answer := httptest.NewRecorder()
	proxy.ServeHTTP(answer, r)
	e.mu.Lock()
	lose := answer.Code < 300 && e.lose > 0
	if lose {
		e.lose--
	}
	for node, id := range w.uuids {
		if answer.Code < 300 && strings.Contains(r.URL.Path, id) {
			e.resets[id]++
			boot := fmt.Sprintf("boot-%d", e.resets[id])
			w.reboots.Go(func() { e.await(t, w, node, boot) })
		}
	}
	e.mu.Unlock()
	if lose {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(rw.Header(), answer.Header())
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// await waits until the emulator has a machine on.
func (e *emulator) await(t *testing.T, w *world, node, boot string) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for e.power(t, w.uuids[node]) != "On" {
		select {
		case <-t.Context().Done():
			return
		case <-tick.C:
		}
	}
	w.came(t, node, boot)
}

// power is what the emulator reports about a machine.
func (e *emulator) power(t *testing.T, id string) string {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/redfish/v1/Systems/"+id, nil)
	if err != nil {
		return ""
	}
	q.SetBasicAuth("operator", "secret")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	var s struct{ PowerState string }
	_ = json.NewDecoder(answer.Body).Decode(&s)
	return s.PowerState
}

func (e *emulator) taken(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resets[id]
}

func TestConformanceOnSushyTools(t *testing.T) {
	testkit.Long(t, "TestConformance on a fake BMC, and TestSushyTools with one reset by the emulator")
	cluster := localcluster.ForTest(t, localcluster.Options{})
	plugintest.Run(t, func(t *testing.T) *plugintest.Bench {
		w := newWorld(t, cluster)
		e := emulate(t, w)
		return w.bench(t, func(node string) int { return e.taken(w.uuids[node]) })
	})
}

// What the emulator of sushy-tools reports is understood: systems, power, resets,
// a reset type that it lacks, a wrong password, an unknown system, a lost answer.
func TestSushyTools(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	w := newWorld(t, cluster)
	e := emulate(t, w)
	a, b := w.namespace+"-a", w.namespace+"-b"
	for _, extra := range []struct{ node, lines string }{
		{w.namespace + "-cycle", "system = \"" + spare + "\"\nresetTypes = [\"PowerCycle\"]"},
		{w.namespace + "-unknown", "system = \"11111111-1111-1111-1111-111111111111\""},
	} {
		w.bmc(t, extra.node, e.proxy, extra.lines+"\nskipUUIDCheck = true")
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: extra.node}); err != nil {
			t.Fatal(err)
		}
	}
	conn := w.start(t)
	ask := func(what string, err error, want codes.Code) {
		t.Helper()
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	ask("a reset type that it lacks", signal(t, conn, w.namespace+"-cycle", "k1"), codes.FailedPrecondition)
	ask("an unknown system", signal(t, conn, w.namespace+"-unknown", "k2"), codes.Aborted)
	w.write(t, "password", "wrong")
	ask("a wrong password", signal(t, conn, a, "k3"), codes.Unauthenticated)
	w.write(t, "password", "secret")
	ask("a reset", signal(t, conn, a, "k3"), codes.OK)
	e.mu.Lock()
	e.lose = 1
	e.mu.Unlock()
	ask("a reset whose answer is lost", signal(t, conn, b, "k4"), codes.Unavailable)
	if e.taken(w.uuids[a]) != 1 || e.taken(w.uuids[b]) != 1 {
		t.Errorf("resets %v, want one of each", e.resets)
	}
}
