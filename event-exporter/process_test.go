package eventexporter_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
)

// waitTimeout bounds the waits for a condition, on machines of any speed.
const waitTimeout = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(localcluster.Main(both{m})) }

// both stops the shared database before the shared cluster.
type both struct{ m *testing.M }

func (b both) Run() int { return pgtest.Main(b.m) }

// binary builds the service, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "event-exporter-")
	if err != nil {
		return "", err
	}
	return testkit.Controller(dir, "event-exporter")
})

// process is one run of the service.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	over chan struct{}
	err  error // valid once over is closed
}

// launch starts the service with a configuration file.
func launch(t *testing.T, file string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--config=" + file, "--metrics-address=127.0.0.1:0"}, args...)
	p := &process{t: t, cmd: exec.Command(path, args...), log: out.Name(), over: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := testkit.StartChild(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); out.Close(); close(p.over) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log)
			t.Logf("log of process %d (%v):\n%s", p.cmd.Process.Pid, p.err, text[max(0, len(text)-4000):])
		}
	})
	return p
}

// signal is sent to the process, or to nobody if it is over.
func (p *process) signal(sig os.Signal) {
	select {
	case <-p.over:
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

// kill ends the process at once and waits for its end.
func (p *process) kill() { p.signal(syscall.SIGKILL); <-p.over }

// stop ends the process as Kubernetes does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.over:
	case <-time.After(waitTimeout):
		p.t.Fatal("the process does not end")
	}
	if p.err != nil {
		p.t.Errorf("the service ended with %v", p.err)
	}
}

var served = regexp.MustCompile(`probe and metrics server started.*"address":"([^"]+)"`)

// get asks the process's own server; an empty text means not yet.
func (p *process) get(path string) (int, string) {
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	address := served.FindSubmatch(log)
	if address == nil {
		return 0, ""
	}
	r, err := http.Get("http://" + string(address[1]) + path)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

// awaitText waits until a page of the process's own server has a text.
func (p *process) awaitText(path, part string) {
	p.t.Helper()
	p.t.Logf("waiting for %q in %s", part, path)
	testkit.Until(p.t, waitTimeout, func() bool {
		_, text := p.get(path)
		return strings.Contains(text, part)
	})
}
