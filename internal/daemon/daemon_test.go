package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// settings is the configuration of the test's services.
type settings struct {
	Name  string        `toml:"name" flag:"name" usage:"a name"`
	Place string        `toml:"place" flag:"place" usage:"a place"`
	Wait  time.Duration `toml:"wait" flag:"wait" usage:"a time"`
}

func (s settings) Validate() error {
	if s.Name == "bad" {
		return errors.New("name must not be bad")
	}
	return nil
}

// lost is an error that leaves little time.
type lost struct{}

func (lost) Error() string        { return "lost" }
func (lost) Grace() time.Duration { return 20 * time.Millisecond }

// journal is a list that tasks write to.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func untilDone(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// get asks the service's server.
func get(t *testing.T, r *Running, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func readiness(t *testing.T, r *Running) (int, Readiness) {
	t.Helper()
	code, body := get(t, r, "/readyz")
	var got Readiness
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("readiness %q: %v", body, err)
	}
	return code, got
}

func TestRun(t *testing.T) {
	var did journal
	release := make(chan struct{})
	synced := make(chan struct{})
	r := RunForTest(t, "svc", settings{}, func(ctx context.Context, d *Daemon, cfg settings) error {
		did.add("built " + cfg.Name)
		d.OnStop("store", func(context.Context) error { did.add("store closed"); return nil })
		d.OnStop("cache", func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Error("no time left to stop in")
			}
			did.add("cache closed")
			return nil
		})
		d.Go("work", func(ctx context.Context) error { <-ctx.Done(); did.add("work ended"); return ctx.Err() })
		d.Go("once", func(context.Context) error { return nil })
		d.Ready("cache", func() (bool, string) {
			select {
			case <-synced:
				return true, "synced"
			default:
				return false, "syncing"
			}
		})
		<-release
		return nil
	}, "--name=n1")

	code, got := readiness(t, r)
	if code != http.StatusServiceUnavailable || got.Detail != "starting" {
		t.Errorf("while it starts /readyz says %d %+v", code, got)
	}
	if code, body := get(t, r, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("while it starts /healthz says %d %q", code, body)
	}
	close(release)
	await(t, func() bool {
		_, got = readiness(t, r)
		return got.Detail == "" && len(got.Tasks) == 2 && got.Tasks[1].State == "done"
	})
	want := Readiness{
		Service: "svc", Tasks: []TaskState{{Name: "work", State: "running"}, {Name: "once", State: "done"}},
		Checks: []CheckState{{Name: "cache", Detail: "syncing"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Readiness{}, "Version")); diff != "" {
		t.Errorf("readiness (-want +got):\n%s", diff)
	}
	close(synced)
	if code, got = readiness(t, r); code != http.StatusOK || !got.Ready {
		t.Errorf("with all done /readyz says %d %+v", code, got)
	}
	if _, body := get(t, r, "/metrics"); !strings.Contains(body, "nvsentinel_build_info{") || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics lack the build or the runtime:\n%s", body)
	}
	if code := r.Stop(); code != 0 {
		t.Errorf("exit code %d after a signal, want 0", code)
	}
	if diff := cmp.Diff([]string{"built n1", "work ended", "cache closed", "store closed"}, did.all()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// await polls a condition until a deadline.
func await(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the condition did not come true")
		}
	}
}

func TestExitCodes(t *testing.T) {
	boom := errors.New("boom")
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("nmae = 'x'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "g.toml")
	if err := os.WriteFile(good, []byte("name = 'x'\nwait = '3s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		args    []string
		build   func(ctx context.Context, d *Daemon, cfg settings) error
		code    int
		message string // in stdout or stderr
	}{
		{name: "help", args: []string{"--help"}, code: 0, message: "  --name\n    \ta name\n"},
		{name: "version", args: []string{"-version"}, code: 0, message: "svc " + Version()},
		{name: "version with a bad configuration", args: []string{"-version", "-config", file}, code: 0, message: "svc"},
		{name: "check-config", args: []string{"--check-config", "--config", good}, code: 0, message: "the configuration is valid"},
		{name: "check-config finds an unknown key", args: []string{"--check-config", "--config", file}, code: 2, message: `unknown key "nmae"`},
		{name: "unknown key", args: []string{"--config", file}, code: 2, message: `unknown key "nmae"`},
		{name: "unknown flag", args: []string{"--nmae=x"}, code: 2, message: "-nmae"},
		{name: "stray argument", args: []string{"start"}, code: 2, message: `unexpected argument "start"`},
		{name: "validation", args: []string{"--name=bad"}, code: 2, message: "name must not be bad"},
		{name: "log level", args: []string{"--log-level=loud"}, code: 2, message: `--log-level: "loud" is not`},
		{name: "log format", args: []string{"--log-format=xml"}, code: 2, message: `--log-format: "xml" is not`},
		{name: "address in use", args: []string{"--metrics-address=256.0.0.1:1"}, code: 1, message: "listening for probes and metrics"},
		{name: "build fails", build: func(context.Context, *Daemon, settings) error { return boom }, code: 1, message: "starting: boom"},
		{name: "build panics", build: func(context.Context, *Daemon, settings) error { panic("ouch") }, code: 1, message: "panic: ouch"},
		{name: "task fails", build: func(_ context.Context, d *Daemon, _ settings) error {
			d.Go("other", untilDone)
			d.Go("work", func(context.Context) error { return boom })
			return nil
		}, code: 1, message: `task \"work\": boom`},
		{name: "task panics", build: func(_ context.Context, d *Daemon, _ settings) error {
			d.Go("work", func(context.Context) error { panic("ouch") })
			return nil
		}, code: 1, message: "panic: ouch"},
		{name: "task fails while it builds", build: func(ctx context.Context, d *Daemon, _ settings) error {
			d.Go("work", func(context.Context) error { return boom })
			<-ctx.Done()
			return ctx.Err()
		}, code: 1, message: `task \"work\": boom`},
		{name: "stop fails", build: func(_ context.Context, d *Daemon, _ settings) error {
			d.OnStop("store", func(context.Context) error { return boom })
			d.Go("work", func(context.Context) error { return nil })
			return nil
		}, code: 1, message: `stopping \"store\": boom`},
		{name: "all tasks done", build: func(_ context.Context, d *Daemon, _ settings) error {
			d.Go("one", func(context.Context) error { return nil })
			d.Go("two", func(context.Context) error { return nil })
			return nil
		}, code: 0, message: "service stopped"},
		{name: "little time for a late task", build: func(_ context.Context, d *Daemon, _ settings) error {
			d.Go("stubborn", func(context.Context) error { <-make(chan struct{}); return nil })
			d.Go("lease", func(context.Context) error { return lost{} })
			return nil
		}, code: 1, message: `tasks [\"stubborn\"] did not end within 20ms`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			in := invocation{
				name: "svc", args: append([]string{"--metrics-address=off"}, tt.args...),
				stdout: &out, stderr: &out, lookup: os.LookupEnv,
			}
			build := tt.build
			if build == nil {
				build = func(context.Context, *Daemon, settings) error { t.Error("the service was built"); return nil }
			}
			if code := start(t.Context(), in, settings{}, build); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(out.String(), tt.message) {
				t.Errorf("%q is not in the output:\n%s", tt.message, out.String())
			}
		})
	}
}

func TestASignalDuringASlowBuildIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	in := invocation{name: "svc", args: []string{"--metrics-address="}, stdout: &out, stderr: &out}
	closed := false
	code := start(ctx, in, settings{}, func(ctx context.Context, d *Daemon, _ settings) error {
		d.OnStop("store", func(context.Context) error { closed = true; return nil })
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if code != 0 || !closed {
		t.Errorf("exit code %d, store closed %v\n%s", code, closed, out.String())
	}
}

// TestALostLeaseEndsTheProcess whatever else still runs.
func TestALostLeaseEndsTheProcess(t *testing.T) {
	r := RunForTest(t, "svc", settings{}, func(_ context.Context, d *Daemon, _ settings) error {
		d.Go("work", func(context.Context) error { return lost{} })
		d.Go("other", untilDone)
		return nil
	})
	if code := r.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

func TestLogsAreJSON(t *testing.T) {
	var out bytes.Buffer
	in := invocation{name: "svc", args: []string{"--metrics-address=127.0.0.1:0", "--log-level=debug"}, stderr: &out, stdout: &out}
	var logged *slog.Logger
	in.logging = func(l *slog.Logger) { logged = l }
	start(t.Context(), in, settings{}, func(_ context.Context, d *Daemon, _ settings) error {
		d.Log.Debug("hello")
		d.Go("work", func(context.Context) error { return nil })
		return nil
	})
	if logged == nil {
		t.Error("libraries are not told the logger")
	}
	messages := map[string]map[string]any{}
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if fields["service"] != "svc" {
			t.Errorf("no service in %q", line)
		}
		messages[fields["msg"].(string)] = fields
	}
	if address, _ := messages["probe and metrics server started"]["address"].(string); !strings.HasPrefix(address, "127.0.0.1:") || strings.HasSuffix(address, ":0") {
		t.Errorf("the bound address is not logged: %v", messages)
	}
	if _, ok := messages["hello"]; !ok {
		t.Error("the debug line is missing")
	}
}
