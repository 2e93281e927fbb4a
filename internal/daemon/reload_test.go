package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestReload changes the file of a running service: valid content is taken over
// with the flags on top, anything else leaves the active one.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("name = \"one\"\nwait = \"1s\"\n")
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	taken, ready := make(chan settings, 10), make(chan struct{})
	running := RunForTest(t, "reloads", settings{}, func(_ context.Context, d *Daemon, cfg settings) error {
		d.Clock = clock
		Reload(d, cfg, func() settings { return settings{Place: "default"} }, func(s settings) error {
			if s.Name == "refused" {
				return errors.New("not this one")
			}
			taken <- s
			return nil
		})
		close(ready)
		return nil
	}, "--config", file, "--wait", "7s")
	<-ready
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + running.Address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		if r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	// failed asks the metric until it is want; a step of the clock each time.
	failed := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; {
			clock.Step(FilesEvery)
			if _, text := get("/metrics"); strings.Contains(text, "nvsentinel_config_reload_failed "+want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("nvsentinel_config_reload_failed is not %s", want)
			}
		}
	}
	next := func() settings {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for {
			select {
			case s := <-taken:
				return s
			case <-time.After(10 * time.Millisecond):
				clock.Step(FilesEvery)
			case <-deadline:
				t.Fatal("nothing was taken over")
			}
		}
	}
	if s := next(); s.Name != "one" || s.Wait != 7*time.Second || s.Place != "default" {
		t.Errorf("first: %+v", s)
	}
	write("name = \"two\"\n")
	if s := next(); s.Name != "two" || s.Wait != 7*time.Second || s.Place != "default" {
		t.Errorf("changed: %+v", s)
	}
	for _, bad := range []string{"name = \"bad\"\n", "nmae = \"x\"\n", "name = ", "name = \"refused\"\n"} {
		write(bad)
		failed("1")
		if status, text := get("/readyz"); status == http.StatusOK || !strings.Contains(text, "the previous configuration is active") {
			t.Errorf("%q: readiness %d: %s", bad, status, text)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	failed("1")
	if len(taken) > 0 {
		t.Errorf("a bad file was taken over: %+v", <-taken)
	}
	write("name = \"three\"\n")
	if s := next(); s.Name != "three" {
		t.Errorf("repaired: %+v", s)
	}
	failed("0")
}
