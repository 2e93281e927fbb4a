package check

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const nodes = `
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {name: gpu-down, labels: {nvidia.com/gpu.present: "true"}}
    status: {conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-03-01T09:00:00Z"}]}
  - apiVersion: v1
    kind: Node
    metadata: {name: gpu-soon, labels: {nvidia.com/gpu.present: "true"}}
    status: {conditions: [{type: Ready, status: Unknown, lastTransitionTime: "2026-03-01T11:00:00Z"}]}
  - apiVersion: v1
    kind: Node
    metadata: {name: broken-object, labels: {nvidia.com/gpu.present: "true"}}
`

func run(t *testing.T, in string, args ...string) (int, string, string) {
	t.Helper()
	var out, problems bytes.Buffer
	code := Run(args, Streams{strings.NewReader(in), &out, &problems}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return code, out.String(), problems.String()
}

func TestTheExampleOnThreeNodes(t *testing.T) {
	code, out, problems := run(t, nodes, "--policy-config-path", "../../policy/testdata/policies.toml")
	t.Log(out)
	for _, want := range []string{
		"policy GPUNodeNotReady (v1 Node)\n", "  gpu-down: match on node gpu-down\n", `"recommendedAction":"RESTART_VM"`,
		"  gpu-soon: no match, evaluated again at 2026-03-01T13:00:00Z\n", "  broken-object: error: no such key: status\n",
		"policy NVMLError (events.k8s.io/v1 Event)\n  no object of this kind was given\n",
	} {
		if !strings.Contains(strings.ReplaceAll(out, `": "`, `":"`), want) {
			t.Errorf("%q is not in the output", want)
		}
	}
	if code != exitErrors || problems != "" {
		t.Errorf("exit code %d, %q", code, problems)
	}
}

func TestTheClockCanBeSetAndFilesRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(file, []byte(nodes), 0o600); err != nil {
		t.Fatal(err)
	}
	_, out, _ := run(t, "", "--policy-config-path", "../../policy/testdata/policies.toml", "--now", "2026-03-01T13:00:01Z", file)
	if !strings.Contains(out, "gpu-soon: match on node gpu-soon\n") {
		t.Error(out)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		in   string
		want string
	}{
		"no file":  {[]string{"--policy-config-path", "absent.toml"}, "", "absent.toml"},
		"the time": {[]string{"--now", "noon"}, "", "flag --now"},
		"object":   {[]string{"--policy-config-path", "../../policy/testdata/policies.toml"}, "a: b", "from input: an object has no kind"},
		"yaml":     {[]string{"--policy-config-path", "../../policy/testdata/policies.toml"}, "a: [", "from input"},
	} {
		if code, _, problems := run(t, c.in, c.args...); code != exitUsage || !strings.Contains(problems, c.want) {
			t.Errorf("%s: exit code %d, %q", name, code, problems)
		}
	}
}
