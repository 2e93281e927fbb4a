package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// mount writes texts as a mounted ConfigMap has them: ..data is a link that is
// exchanged.
func mount(t *testing.T, dir, version string, texts map[string]string) {
	t.Helper()
	at := filepath.Join(dir, version)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(version, filepath.Join(dir, "next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestFollower: each content is reported once, whatever became of it; the files that a
// content names count as their own from then on.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, main := t.TempDir(), ""
		mount(t, dir, "0", map[string]string{"main": "more", "more": "a"})
		var reported, taken []string
		broken := false
		var mu sync.Mutex // the bubble's time orders nothing for the race detector
		at := func(name string) string { return filepath.Join(dir, "..data", name) }
		f := &FileFollower{Clock: clock.RealClock{}, Files: func() []string {
			mu.Lock()
			defer mu.Unlock()
			if main == "" {
				return []string{at("main")}
			}
			return []string{at("main"), at(main)}
		}, Take: func() error {
			mu.Lock()
			defer mu.Unlock()
			names, err := os.ReadFile(at("main"))
			if err != nil {
				return errors.New("gone")
			}
			text, err := os.ReadFile(at(string(names)))
			if err != nil || strings.HasPrefix(string(text), "bad") || broken {
				return errors.New("not " + string(names))
			}
			main, taken = string(names), append(taken, string(text))
			return nil
		}, OnReload: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if reported = append(reported, "taken"); err != nil {
				reported[len(reported)-1] = err.Error()
			}
		}}
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		for _, step := range []struct {
			what  string
			do    func()
			calls []string
			taken string // the last one
		}{
			{"nothing", func() {}, nil, "a"},
			{"another file", func() { mount(t, dir, "1", map[string]string{"main": "more", "more": "b"}) }, []string{"taken"}, "b"},
			{"the same again", func() { mount(t, dir, "2", map[string]string{"main": "more", "more": "b"}) }, nil, "b"},
			{"bad", func() { mount(t, dir, "3", map[string]string{"main": "more", "more": "bad"}) }, []string{"not more"}, "b"},
			{"bad in another way", func() { mount(t, dir, "4", map[string]string{"main": "more", "more": "bad as well"}) }, []string{"not more"}, "b"},
			{"gone", func() { mount(t, dir, "5", nil) }, []string{"gone"}, "b"},
			{"names another", func() { mount(t, dir, "6", map[string]string{"main": "x", "x": "c"}) }, []string{"taken"}, "c"},
			{"which changes", func() { mount(t, dir, "7", map[string]string{"main": "x", "x": "d"}) }, []string{"taken"}, "d"},
			{"not taken for another reason", func() {
				broken = true
				mount(t, dir, "8", map[string]string{"main": "x", "x": "e"})
			}, []string{"not x"}, "d"},
			{"which ends", func() { broken = false }, []string{"taken"}, "e"},
		} {
			mu.Lock()
			reported = nil
			step.do()
			mu.Unlock()
			time.Sleep(3 * FilesEvery) // the bubble's time
			synctest.Wait()
			if !slices.Equal(reported, step.calls) || taken[len(taken)-1] != step.taken {
				t.Errorf("%s: told %q, want %q; in force %q, want %q", step.what, reported, step.calls, taken[len(taken)-1], step.taken)
			}
			if bad := len(reported) > 0 && reported[0] != "taken"; bad != (f.Trouble() != "") {
				t.Errorf("%s: trouble %q", step.what, f.Trouble())
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
