package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldSpellingsAreNamedOnce: in one warning of a start, and by --check-config.
func TestOldSpellingsAreNamedOnce(t *testing.T) {
	type config struct {
		Host bool `toml:"singleHost" old:"single-host"`
		Dry  bool `toml:"dryRun" old:"dry-run"`
	}
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("single-host = true\ndry-run = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a start":      {[]string{"--metrics-address=off"}, `"keys":["single-host is an old spelling of singleHost","dry-run is an old spelling of dryRun"]`},
		"check-config": {[]string{"--check-config"}, "svc: key single-host is an old spelling of singleHost\nsvc: key dry-run is an old spelling of dryRun\nthe configuration is valid"},
	} {
		var out bytes.Buffer
		in := invocation{name: "svc", args: append(tc.args, "--config="+file), stdout: &out, stderr: &out}
		code := start(t.Context(), in, config{}, func(_ context.Context, d *Daemon, cfg config) error {
			if !cfg.Host || !cfg.Dry {
				t.Errorf("%s: %+v", name, cfg)
			}
			d.Go("nothing", func(context.Context) error { return nil })
			return nil
		})
		if code != exitStopped || strings.Count(out.String(), tc.want) != 1 || strings.Count(out.String(), "single-host") != 1 {
			t.Errorf("%s ended with %d and said\n%s\nwant %q once", name, code, &out, tc.want)
		}
	}
}
