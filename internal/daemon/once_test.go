package daemon

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// TestOnce: how one-time programs end.
func TestOnce(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, x := range map[string]struct {
		ctx     context.Context
		args    []string
		run     func(ctx context.Context) error
		code    int
		message string
	}{
		"done":          {t.Context(), nil, func(context.Context) error { return nil }, 0, "program is done"},
		"failed":        {t.Context(), nil, func(context.Context) error { return errors.New("no room") }, 1, "no room"},
		"panicked":      {t.Context(), nil, func(context.Context) error { panic("odd") }, 1, "panic: odd"},
		"a signal":      {stopped, nil, func(ctx context.Context) error { return ctx.Err() }, 1, `"interrupted":true`},
		"a wrong flag":  {t.Context(), []string{"--nmae=x"}, nil, 2, "-nmae"},
		"no server":     {t.Context(), []string{"--metrics-address=:0"}, nil, 2, "-metrics-address"},
		"a wrong level": {t.Context(), []string{"--log-level=loud"}, nil, 2, "--log-level"},
		"help":          {t.Context(), []string{"--help"}, nil, 0, "--name"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			in := invocation{name: "svc", args: x.args, stdout: &out, stderr: &out, lookup: func(string) (string, bool) { return "", false }}
			code := once(x.ctx, in, settings{}, func(ctx context.Context, _ *Job, _ settings) error { return x.run(ctx) })
			if code != x.code || !strings.Contains(out.String(), x.message) {
				t.Errorf("exit code %d, want %d, and %q in:\n%s", code, x.code, x.message, out.String())
			}
		})
	}
}
