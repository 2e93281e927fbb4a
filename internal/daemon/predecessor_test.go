package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesOfTheEarlierOneAreAnsweredWithOurs: a flag, a key or a variable of the
// earlier NVSentinel is answered with what it is here; others as ever.
func TestNamesOfTheEarlierOneAreAnsweredWithOurs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("[customDrain]\nenabled = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		env  string
		code int
		want string
	}{
		{"a flag", []string{"--metrics-port=2112"}, "", exitUsage, "here it is --metrics-address=:PORT (docs/coming-from-nvsentinel.md)"},
		{"another flag", []string{"--nonsense"}, "", exitUsage, "flag provided but not defined: -nonsense"},
		{"a key", []string{"--config=" + file}, "", exitUsage, `unknown key "customDrain": customDrain is a key of the earlier NVSentinel`},
		{"a variable", []string{"--check-config"}, "AUDIT_ENABLED", exitStopped, "AUDIT_ENABLED is a variable of the earlier NVSentinel"},
		{"no variable", []string{"--check-config"}, "HOME", exitStopped, "the configuration is valid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			in := invocation{name: "node-drainer", args: tc.args, stdout: &out, stderr: &out, lookup: func(n string) (string, bool) { return "true", n == tc.env }}
			code := start(t.Context(), in, settings{}, func(context.Context, *Daemon, settings) error { return nil })
			if code != tc.code || !strings.Contains(out.String(), tc.want) {
				t.Errorf("it ended with %d and said\n%s\nwant %d and %q", code, &out, tc.code, tc.want)
			}
			if told := strings.Contains(out.String(), "earlier NVSentinel"); told != (tc.name == "a flag" || tc.name == "a key" || tc.name == "a variable") {
				t.Errorf("it speaks of the earlier one without need:\n%s", &out)
			}
		})
	}
}
