package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesOfTheEarlierOne: a flag or a key that is not known ends the start, and the command
// that converts those of the earlier NVSentinel is named.
func TestNamesOfTheEarlierOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("[customDrain]\nenabled = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"a flag":  {[]string{"--metrics-port=2112"}, exitUsage, []string{"flag provided but not defined: -metrics-port", "nvsentinel convert-config --kind flags --program node-drainer"}},
		"a key":   {[]string{"--config=" + file}, exitUsage, []string{file, `unknown key "customDrain"`, "nvsentinel convert-config --program node-drainer " + file}},
		"nothing": {[]string{"--check-config"}, exitStopped, []string{"the configuration is valid"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			in := invocation{name: "node-drainer", args: tc.args, stdout: &out, stderr: &out, lookup: func(string) (string, bool) { return "", false }}
			code := start(t.Context(), in, settings{}, func(context.Context, *Daemon, settings) error { return nil })
			for _, want := range tc.want {
				if code != tc.code || !strings.Contains(out.String(), want) {
					t.Errorf("it ended with %d and said\n%s\nwant %d and %q", code, &out, tc.code, want)
				}
			}
		})
	}
}
