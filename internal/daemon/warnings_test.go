package daemon

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// unwise is a valid configuration with something to warn of.
type unwise struct {
	Names string `toml:"names"`
}

func (unwise) Warnings() []string { return []string{"names: one of them reads a message"} }

// TestWarningsOfAConfiguration: in the log of a start, and by --check-config.
func TestWarningsOfAConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a start":      {[]string{"--metrics-address=off"}, `"warning":"names: one of them reads a message"`},
		"check-config": {[]string{"--check-config"}, "svc: warning: names: one of them reads a message\nthe configuration is valid"},
	} {
		var out bytes.Buffer
		in := invocation{name: "svc", args: tc.args, stdout: &out, stderr: &out}
		code := start(t.Context(), in, unwise{}, func(_ context.Context, d *Daemon, _ unwise) error {
			d.Go("nothing", func(context.Context) error { return nil })
			return nil
		})
		if code != exitStopped || strings.Count(out.String(), tc.want) != 1 {
			t.Errorf("%s ended with %d and said\n%s\nwant %q once", name, code, &out, tc.want)
		}
	}
}
