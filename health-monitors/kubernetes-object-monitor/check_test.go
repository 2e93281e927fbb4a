package kubernetesobjectmonitor

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

func checked(t *testing.T, in string, args ...string) (int, string, string) {
	t.Helper()
	var out, problems bytes.Buffer
	code := runCheck(args, streams{strings.NewReader(in), &out, &problems}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return code, out.String(), problems.String()
}

func TestTheExampleOnThreeNodes(t *testing.T) {
	code, out, problems := checked(t, nodes, "--policy-config-path", "policy/testdata/policies.toml")
	t.Log(out)
	for _, want := range []string{
		"policy GPUNodeNotReady (v1 Node)\n", "  gpu-down: match on node gpu-down\n", `"recommendedAction":"RESTART_VM"`,
		"  gpu-soon: no match, evaluated again at 2026-03-01T13:00:00Z\n", "  broken-object: error: no such key: status\n",
		"policy NVMLError (events.k8s.io/v1 Event)\n  warning: accounts that can write objects of kind Event", "\n  warning: the policy acts on text (resource.note)", "  no object of this kind given\n",
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
	_, out, _ := checked(t, "", "--policy-config-path", "policy/testdata/policies.toml", "--now", "2026-03-01T13:00:01Z", file)
	if !strings.Contains(out, "gpu-soon: match on node gpu-soon\n") {
		t.Error(out)
	}
}

func TestCheckNamesProblems(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		in   string
		want string
	}{
		"no file":  {[]string{"--policy-config-path", "absent.toml"}, "", "absent.toml"},
		"the time": {[]string{"--now", "noon"}, "", "flag --now"},
		"object":   {[]string{"--policy-config-path", "policy/testdata/policies.toml"}, "a: b", "from input: an object has no kind"},
		"yaml":     {[]string{"--policy-config-path", "policy/testdata/policies.toml"}, "a: [", "from input"},
	} {
		if code, _, problems := checked(t, c.in, c.args...); code != exitUsage || !strings.Contains(problems, c.want) {
			t.Errorf("%s: exit code %d, %q", name, code, problems)
		}
	}
}

// shipped is the file of policies that the chart ships.
func shipped(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../distros/helm/nvsentinel/manifests/kubernetes-object-monitor/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	given, err := decode("deployment.yaml", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range given {
		if data, ok := object.Object["data"].(map[string]any); ok {
			file := filepath.Join(t.TempDir(), "policies.toml")
			if err := os.WriteFile(file, []byte(data["policies.toml"].(string)), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatal("the manifest has no policies")
	return ""
}

// TestShippedPolicyBelievesTheNodesOwnKubelet: an Event that anybody could have
// written, about a pod that anybody could have made, names no node.
func TestShippedPolicyBelievesTheNodesOwnKubelet(t *testing.T) {
	const event = `
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e, namespace: team}
type: Warning
reason: Failed
regarding: {kind: Pod, namespace: team, name: train}
reportingController: kubelet
reportingInstance: victim
note: "nvidia-container-cli: initialization error: nvml error: driver not loaded"
eventTime: "2026-03-01T11:59:00.000000Z"
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: team}
spec: {nodeName: victim, containers: [{name: c, resources: {limits: {nvidia.com/gpu: "1"}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: victim, labels: {nvidia.com/gpu.present: "true"}}
status: {conditions: []}
`
	for name, c := range map[string]struct {
		change []string
		match  bool
	}{
		"the node's own kubelet":       {nil, true},
		"a slice of a GPU":             {[]string{"nvidia.com/gpu:", "nvidia.com/mig-1g.5gb:"}, true},
		"another node's kubelet":       {[]string{"reportingInstance: victim", "reportingInstance: evil"}, false},
		"nobody says on which node":    {[]string{"reportingInstance: victim\n", ""}, false},
		"a pod on another node":        {[]string{"nodeName: victim", "nodeName: other"}, false},
		"a pod without GPUs":           {[]string{"nvidia.com/gpu:", "cpu:"}, false},
		"a pod without limits":         {[]string{`, resources: {limits: {nvidia.com/gpu: "1"}}`, ""}, false},
		"a pod that is not there":      {[]string{"name: train}\nreporting", "name: none}\nreporting"}, false},
		"a node without GPUs":          {[]string{", labels: {nvidia.com/gpu.present: \"true\"}", ""}, false},
		"another reporter":             {[]string{"reportingController: kubelet", "reportingController: team"}, false},
		"a node whose GPUs are absent": {[]string{"present: \"true\"", "present: \"false\""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, problems := checked(t, strings.NewReplacer(append(c.change, "\x00", "")...).Replace(event), "--policy-config-path", shipped(t))
			if strings.Contains(out, "match on node victim") != c.match || problems != "" || strings.Contains(out, "match on node evil") {
				t.Errorf("want a match: %v\n%s%s", c.match, out, problems)
			}
			if strings.Contains(out, "warning") {
				t.Errorf("a warning about a policy of ours:\n%s", out)
			}
		})
	}
}

// TestPoliciesThatTenantsCouldUseAreNamed: of each kind that is in a namespace.
func TestPoliciesThatTenantsCouldUseAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		kind, more, association, strategy string
		warned                            bool
	}{
		"a Pod of any namespace":     {`version = "v1"` + "\n" + `kind = "Pod"`, "", "resource.spec.nodeName", "", true},
		"a Pod of one namespace":     {`version = "v1"` + "\n" + `kind = "Pod"`, `namespace = "storage"`, "resource.spec.nodeName", "", false},
		"a Pod for the record":       {`version = "v1"` + "\n" + `kind = "Pod"`, "", "resource.spec.nodeName", `processingStrategy = "PERSIST_ONLY"`, false},
		"a Job":                      {`group = "batch"` + "\n" + `version = "v1"` + "\n" + `kind = "Job"`, "", "resource.metadata.annotations['node']", "", true},
		"a ConfigMap":                {`version = "v1"` + "\n" + `kind = "ConfigMap"`, "", "resource.data.node", "", true},
		"an Event of whoever":        {`version = "v1"` + "\n" + `kind = "Event"`, "", "resource.reportingInstance", "", true},
		"a kind of one's own":        {`group = "example.com"` + "\n" + `version = "v1"` + "\n" + `kind = "Check"`, "", "resource.spec.node", "", true},
		"a volume, which no tenant.": {`version = "v1"` + "\n" + `kind = "PersistentVolume"`, "", "resource.metadata.labels['node']", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policies.toml")
			text := "[[policies]]\nname = \"P\"\nenabled = true\n[policies.resource]\n" + c.kind + "\n" + c.more +
				"\n[policies.predicate]\nexpression = \"true\"\n[policies.nodeAssociation]\nexpression = \"" + c.association +
				"\"\n[policies.healthEvent]\n" + c.strategy + "\ncomponentClass = \"Node\"\nisFatal = true\nmessage = \"m\"\nrecommendedAction = \"REBOOT_NODE\"\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, out, problems := checked(t, nodes, "--policy-config-path", file)
			if strings.Contains(out, "warning: accounts that can write") != c.warned || problems != "" {
				t.Errorf("want a warning: %v\n%s%s", c.warned, out, problems)
			}
		})
	}
}

// TestANameOfAnotherAgentIsRefused, with file, policy and what would be right, unless the
// connectors give this monitor the very name.
func TestANameOfAnotherAgentIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	example, err := os.ReadFile("policy/testdata/policies.toml")
	if err != nil {
		t.Fatal(err)
	}
	policies := write("policies.toml", strings.Replace(string(example), `"GPUNodeNotReady"`, `"GpuBroken"`, 1))
	code, _, problems := checked(t, nodes, "--policy-config-path", policies)
	for _, want := range []string{
		policies, `policies[0] ("GpuBroken"): name:`, `belongs to agent "gpu-health-monitor" (checks "Gpu*" in the connectors' built-in names)`,
		"choose another name", `[[publishers.agent]]`,
	} {
		if code != exitUsage || !strings.Contains(problems, want) {
			t.Errorf("exit code %d, %q is not in %q", code, want, problems)
		}
	}
	given := write("connector.toml", "[[publishers.agent]]\nname = \"gpu-health-monitor\"\nchecks = [\"Gpu*\"]\n"+
		"[[publishers.agent]]\nname = \"kubernetes-object-monitor\"\nchecks = [\"GpuBroken\"]\n")
	code, out, problems := checked(t, nodes, "--policy-config-path", policies, "--publishers-config-path", given)
	if code != exitErrors || problems != "" || !strings.Contains(out, "policy GpuBroken (v1 Node)") {
		t.Errorf("exit code %d, %q", code, problems)
	}
	if code, _, problems := checked(t, nodes, "--policy-config-path", policies, "--publishers-config-path", dir+"/none"); code != exitUsage || !strings.Contains(problems, "publishersConfigPath") {
		t.Errorf("exit code %d, %q", code, problems)
	}
}
