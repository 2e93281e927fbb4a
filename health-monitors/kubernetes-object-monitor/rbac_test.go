package kubernetesobjectmonitor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func run(args ...string) (code int, out, problems string) {
	var o, p bytes.Buffer
	code = runRights(args, &o, &p)
	return code, o.String(), p.String()
}

func TestPrintedRBAC(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			file := filepath.Join(t.TempDir(), "policies.toml")
			text := d.Input
			if d.HasArg("adr") {
				example, err := os.ReadFile("policy/testdata/policies.toml")
				if err != nil {
					t.Fatal(err)
				}
				text = string(example)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, out, problems := run("--policy-config-path", file)
			return out + strings.ReplaceAll(problems, file, "policies.toml")
		})
	})
}

func TestProblemsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":    {[]string{"--policy-config-path", "absent.toml"}, "absent.toml"},
		"kubeconfig": {[]string{"--policy-config-path", "policy/testdata/policies.toml", "--kubeconfig", "absent"}, "kubeconfig absent"},
		"argument":   {[]string{"--policy-config-path", "policy/testdata/policies.toml", "more"}, `unexpected argument "more"`},
	} {
		if code, out, problems := run(c.args...); code != exitUsage || !strings.Contains(problems, c.want) {
			t.Errorf("%s: exit code %d, %q, %q", name, code, out, problems)
		}
	}
	if code, _, help := run("--help"); code != exitFine || !strings.Contains(help, "-kubeconfig") {
		t.Errorf("help: exit code %d, %q", code, help)
	}
}
