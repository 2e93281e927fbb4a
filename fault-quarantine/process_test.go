package faultquarantine_test

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

// binary builds the service with its crash points, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fault-quarantine-")
	if err != nil {
		return "", err
	}
	return testkit.Controller(dir, "fault-quarantine")
})

// process is one run of the service.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	over chan struct{}
	err  error // valid once over is closed
}

func launch(t *testing.T, path string, env, args []string) *process {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(path, args...), log: out.Name(), over: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, append(os.Environ(), env...)
	if err := testkit.StartChild(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); out.Close(); close(p.over) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log)
			t.Logf("log of process %d (%v):\n%s", p.cmd.Process.Pid, p.err, text[max(0, len(text)-6000):])
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
	p.end()
	if p.err != nil {
		p.t.Errorf("the service ended with %v", p.err)
	}
}

// end waits until the process has ended by itself.
func (p *process) end() {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(waitTimeout):
		p.t.Fatal("the process does not end")
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

func (p *process) awaitMetric(line string) {
	p.t.Helper()
	p.t.Logf("waiting for %s", line)
	testkit.Until(p.t, waitTimeout, func() bool {
		_, text := p.get("/metrics")
		return strings.Contains(text, line+"\n")
	})
}

// output is the process's log.
func (p *process) output() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}
