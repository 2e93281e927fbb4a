package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSeveralReadTheirOwn: each controller gets its own flags and file, and all that is
// wrong is reported, with the name of the controller, before anything starts.
func TestSeveralReadTheirOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.toml")
	if err := os.WriteFile(file, []byte("place = 'file'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("nmae = 'x'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		args    []string
		code    int
		message []string
	}{
		{"flags", []string{"--a.name=x", "-b.name", "y", "--b.config=" + file}, exitStopped, []string{"<a x >", "<b y file>"}},
		{"check-config", []string{"--check-config", "--b.config=" + file}, exitStopped, []string{"the configuration is valid"}},
		{"version", []string{"--version"}, exitStopped, []string{"controller " + Version()}},
		{"help", []string{"--help"}, exitStopped, []string{"  --a.name\n    \ta name", "  --b.config\n", "  --metrics-address\n"}},
		{"each is named that is wrong", []string{"--a.name=bad", "--b.config=" + bad}, exitUsage, []string{"a: name must not be bad", "b: ", bad, `unknown key "nmae"`}},
		{"a flag without its controller", []string{"--name=x"}, exitUsage, []string{"flag provided but not defined: -name", "such as --a.config"}},
		{"a value of another type", []string{"--b.wait=soon"}, exitUsage, []string{`flag -b.wait: "soon" is not a duration`}},
		{"one file for all", []string{"--config=" + file}, exitUsage, []string{"set a file for each, such as --a.config"}},
		{"a flag of one that is not chosen", []string{"--c.name=x"}, exitUsage, []string{"flag provided but not defined: -c.name"}},
		{"a log level that is none", []string{"--log-level=loud"}, exitUsage, []string{`"loud" is not debug, info, warn or error`}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var output lines
			table := controllersOf(func(_ context.Context, d *Daemon, cfg settings) error {
				fmt.Fprintf(&output, "<%s %s %s>", d.Name, cfg.Name, cfg.Place)
				d.Go("work", untilDone)
				return nil
			}, "a", "b")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in := invocation{name: "controller", args: append([]string{"--metrics-address=off"}, tc.args...), stdout: &output, stderr: &output, lookup: os.LookupEnv}
			done := make(chan int, 1)
			go func() { done <- startSeveral(ctx, in, table) }()
			await(t, func() bool {
				for _, want := range tc.message {
					if !strings.Contains(output.String(), want) {
						return false
					}
				}
				return true
			})
			cancel()
			if code := <-done; code != tc.code {
				t.Errorf("exit code %d, want %d:\n%s", code, tc.code, output.String())
			}
		})
	}
}

// TestSeveralAreOneProcess: one server has the metrics of all, each series under its
// controller's name, and is ready when all are.
func TestSeveralAreOneProcess(t *testing.T) {
	synced := make(chan struct{})
	r := runSeveral(t, controllersOf(func(_ context.Context, d *Daemon, _ settings) error {
		d.Registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "shared", Help: "h", ConstLabels: prometheus.Labels{"task": "x"}}))
		d.Go("work", untilDone)
		d.Ready("cache", func() (bool, string) {
			select {
			case <-synced:
				return true, ""
			default:
				return d.Name == "a", "syncing"
			}
		})
		if d.Crashes == nil {
			return errors.New("the crashes of one would be another's")
		}
		return nil
	}, "a", "b"))
	await(t, func() bool { _, got := readiness(t, r); return len(got.Checks) == 2 && len(got.Tasks) == 2 })
	code, got := readiness(t, r)
	if code != http.StatusServiceUnavailable || got.Service != "controller" || got.Tasks[1].Name != "b: work" ||
		!got.Checks[0].OK || got.Checks[1].OK || got.Checks[1].Name != "b: cache" {
		t.Errorf("with one that is not ready /readyz says %d %+v", code, got)
	}
	close(synced)
	if code, got := readiness(t, r); code != http.StatusOK || !got.Ready {
		t.Errorf("with all ready /readyz says %d %+v", code, got)
	}
	_, metrics := get(t, r, "/metrics")
	for _, want := range []string{`shared{controller="a",task="x"} 0`, `shared{controller="b",task="x"} 0`, "nvsentinel_build_info{version=", "go_goroutines "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s:\n%s", want, metrics)
		}
	}
	if code := r.Stop(); code != exitStopped {
		t.Errorf("exit code %d after a signal", code)
	}
}

// TestNoneIsLeftBehind: however one of several ends, the process ends too, reports which one
// it was, and stops the others in order and in the time that the end leaves.
func TestNoneIsLeftBehind(t *testing.T) {
	tests := map[string]struct {
		build   func(d *Daemon) error
		message string
	}{
		"start": {func(*Daemon) error { return errors.New("boom") }, "controller bad: starting: boom"},
		"panic": {func(*Daemon) error { panic("boom") }, "controller bad: starting: panic: boom"},
		"task": {func(d *Daemon) error {
			d.Go("t", func(context.Context) error { return errors.New("boom") })
			return nil
		}, `controller bad: task \"t\": boom`},
		"lost lease": {func(d *Daemon) error { d.Go("t", func(context.Context) error { return lost{} }); return nil }, `controller bad: task \"t\": lost`},
		"by itself":  {func(d *Daemon) error { d.Go("t", func(context.Context) error { return nil }); return nil }, "controller bad: the controller has ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var did journal
			var output lines
			running := make(chan struct{})
			r := runSeveralLogged(t, &output, controllersOf(func(_ context.Context, d *Daemon, _ settings) error {
				if d.Name == "bad" {
					<-running
					return tc.build(d)
				}
				d.OnStop("store", func(context.Context) error { did.add("closed"); return nil })
				d.Go("work", func(ctx context.Context) error { close(running); <-ctx.Done(); did.add("ended"); return ctx.Err() })
				return nil
			}, "good", "bad"))
			if code := r.Wait(); code != exitFailed {
				t.Errorf("exit code %d, want %d", code, exitFailed)
			}
			if got := did.all(); len(got) != 2 || got[0] != "ended" || got[1] != "closed" {
				t.Errorf("the other one did %q", got)
			}
			if text := output.String(); !strings.Contains(text, tc.message) || !strings.Contains(text, "controller bad failed in the same process") {
				t.Errorf("the log does not say %q:\n%s", tc.message, text)
			}
		})
	}
}

// TestALostLeaseEndsAllSoon: a controller that does not stop holds the process up no longer
// than the lost lease of another one allows.
func TestALostLeaseEndsAllSoon(t *testing.T) {
	var output lines
	release := make(chan struct{})
	defer close(release)
	r := runSeveralLogged(t, &output, controllersOf(func(_ context.Context, d *Daemon, _ settings) error {
		if d.Name == "bad" {
			d.Go("t", func(context.Context) error { return lost{} })
			return nil
		}
		d.Go("stuck", func(context.Context) error { <-release; return nil })
		return nil
	}, "good", "bad"))
	if code := r.Wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if text := output.String(); !strings.Contains(text, `controller good: tasks [\"stuck\"] did not end within 20ms`) {
		t.Errorf("the log does not say who was pending, and how long:\n%s", text)
	}
}

func runSeveral(t *testing.T, table []Controller) *Running {
	t.Helper()
	return runSeveralLogged(t, &lines{}, table)
}

// runSeveralLogged runs controllers in one process, with its logs in output.
func runSeveralLogged(t *testing.T, output *lines, table []Controller) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Running{cancel: cancel, done: make(chan struct{})}
	ready := make(chan struct{})
	in := invocation{
		name: "controller", args: []string{"--metrics-address=127.0.0.1:0"}, stdout: output, stderr: output, lookup: os.LookupEnv,
		bound: func(address string) { r.Address = address; close(ready) },
	}
	go func() { defer close(r.done); r.code = startSeveral(ctx, in, table) }()
	<-ready
	t.Cleanup(func() { r.Stop() })
	return r
}

// lines is the output of a process.
type lines struct{ journal }

func (l *lines) Write(p []byte) (int, error) { l.add(string(p)); return len(p), nil }
func (l *lines) String() string              { return strings.Join(l.all(), "") }
