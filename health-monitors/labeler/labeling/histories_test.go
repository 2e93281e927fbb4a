package labeling_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestNodeHistories runs histories of a node as text: the input is what happens to it, the output
// its labels and the result of the shipped policy.
func TestNodeHistories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		n := newNode(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return n.run(t, d) })
	})
}

// node is one Node and what is on it.
type node struct {
	policy    labeling.Policy
	mismatch  *policy.Policy
	labels    map[string]string
	ready     bool
	pods      map[string]map[string]labeling.Pod // by kind and name
	elsewhere map[string]bool
	gpus      string
	groups    *labeling.Groups
	memory    labeling.Memory
	now       time.Time
	started   int
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{
		policy: labeling.Policy{Grace: 10 * time.Minute, RequireReady: true, Classes: builtin(t)}, mismatch: shipped(t),
		labels: map[string]string{}, ready: true, pods: map[string]map[string]labeling.Pod{"dcgm": {}, "driver": {}},
		elsewhere: map[string]bool{"dcgm": true, "driver": true}, groups: labeling.NewGroups(), now: testkit.Start,
	}
}

func builtin(t *testing.T) []labeling.Class {
	t.Helper()
	classes, err := labeling.Parse("builtin", labeling.Builtin)
	if err != nil {
		t.Fatal(err)
	}
	return classes
}

// shipped is the chart's policy about the labels.
func shipped(t *testing.T) *policy.Policy {
	t.Helper()
	const path = "../../../distros/helm/nvsentinel/manifests/gpu-count-mismatch.toml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(path, string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return set.Policies[0]
}

func (n *node) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "set":
		for line := range strings.Lines(d.Input) {
			n.set(t, d, strings.Fields(line))
		}
		return ""
	case "restart": // another leader remembers nothing
		n.memory = nil
		return ""
	case "look":
		for _, a := range d.CmdArgs {
			by, err := time.ParseDuration(strings.TrimPrefix(a.Key, "+"))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			n.now = n.now.Add(by)
		}
		return n.reconcile(t)
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// set changes one thing of the node.
func (n *node) set(t *testing.T, d *datadriven.TestData, words []string) {
	t.Helper()
	switch what, rest := words[0], words[1:]; what {
	case "label":
		key, value, given := strings.Cut(rest[0], "=")
		n.labels[key] = value
		if !given {
			delete(n.labels, key)
		}
	case "dcgm", "driver": // NAME IMAGE ready|starting|ending, or NAME gone
		if rest[1] == "gone" {
			delete(n.pods[what], rest[0])
			return
		}
		n.started++
		n.pods[what][rest[0]] = labeling.Pod{
			Name: rest[0], Images: []string{"busybox", rest[1]}, Ready: rest[2] == "ready", Ending: rest[2] == "ending",
			Created: testkit.Start.Add(time.Duration(n.started)),
		}
	case "elsewhere": // pods of a kind on other nodes
		n.elsewhere[rest[0]] = rest[1] == "yes"
	case "gpus":
		n.gpus = rest[0]
	case "node":
		n.ready = rest[0] == "ready"
	case "peer": // NAME COUNT, in the node's group
		var labelled []labeling.Labelled
		if count, err := strconv.Atoi(rest[1]); err == nil {
			labelled = append(labelled, labeling.Labelled{Class: "gpu", Group: n.policy.Classes[0].Group(n.labels), Count: count})
		}
		n.groups.Set(rest[0], labelled)
	case "override":
		count, err := strconv.Atoi(rest[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		n.policy.Classes[0].Overrides = append(n.policy.Classes[0].Overrides, labeling.Override{MatchLabels: map[string]string{"pool": "odd"}, Count: count})
	case "classes":
		n.policy.Classes = nil
	default:
		d.Fatalf(t, "unknown: %s", what)
	}
}

// object is the Node as an expression sees it.
func (n *node) object() map[string]any {
	labels, allocatable := map[string]any{}, map[string]any{"cpu": "7910m"}
	for key, value := range n.labels {
		labels[key] = value
	}
	if n.gpus != "" && n.gpus != "-" {
		allocatable["nvidia.com/gpu"] = n.gpus
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "labels": labels}, "status": map[string]any{"allocatable": allocatable},
	}
}

func (n *node) view(t *testing.T) labeling.View {
	t.Helper()
	pods := func(kind string) (out []labeling.Pod) {
		for _, p := range n.pods[kind] {
			out = append(out, p)
		}
		return out
	}
	v := labeling.View{Labels: n.labels, Ready: n.ready, DCGM: pods("dcgm"), Driver: pods("driver"), Counts: map[string]labeling.Count{}}
	v.DCGMAnywhere, v.DriverAnywhere = len(v.DCGM) > 0 || n.elsewhere["dcgm"], len(v.Driver) > 0 || n.elsewhere["driver"]
	var labelled []labeling.Labelled
	for _, c := range n.policy.Classes {
		if one, ok := c.LabeledAs(n.labels); ok {
			labelled = append(labelled, one)
		}
	}
	n.groups.Set("n1", labelled)
	for _, c := range n.policy.Classes {
		seen := labeling.Count{Group: c.Group(n.labels)}
		count, err := c.Count(n.object(), nil)
		if seen.Value = count; errors.Is(err, labeling.ErrNoSource) {
			seen.Trouble = labeling.NoSource
		} else if err != nil {
			t.Fatal(err)
		}
		seen.Peers = n.groups.Most(c.Name, seen.Group)
		v.Counts[c.Name] = seen
	}
	return v
}

// reconcile decides, applies and shows.
func (n *node) reconcile(t *testing.T) string {
	t.Helper()
	verdict := labeling.Decide(n.view(t), n.policy, n.memory, n.now)
	n.memory = verdict.Memory
	changes := map[string]bool{}
	for _, r := range verdict.Changes(n.labels) {
		changes[r.Key] = true
	}
	foreign := maps.Clone(n.labels)
	n.labels = verdict.Apply(n.labels)
	var out strings.Builder
	for _, r := range verdict.Rulings {
		delete(foreign, r.Key)
		if r.Reason == labeling.Absent || r.Reason == labeling.NoSource && r.Value == "" {
			continue
		}
		mark := map[bool]string{true: "* ", false: "  "}[changes[r.Key]]
		fmt.Fprintf(&out, "%s%s=%s %s\n", mark, strings.TrimPrefix(r.Key, "nvsentinel.dgxc.nvidia.com/"), cmp.Or(r.Value, "-"), r.Reason)
	}
	for key, value := range foreign {
		if n.labels[key] != value {
			t.Errorf("label %s, which is not the labeler's, was %q and is %q", key, value, n.labels[key])
		}
	}
	if verdict.Again > 0 {
		fmt.Fprintf(&out, "again in %s\n", verdict.Again)
	}
	if again := labeling.Decide(n.view(t), n.policy, n.memory, n.now); len(again.Changes(n.labels)) > 0 {
		t.Errorf("a second look changes %v", again.Changes(n.labels))
	}
	fmt.Fprintf(&out, "GpuCountMismatch: %s\n", n.policyAnswer(t))
	return out.String()
}

// policyAnswer is the policy's answer about the Node.
func (n *node) policyAnswer(t *testing.T) string {
	t.Helper()
	match, err := n.mismatch.Match(n.object(), n.now, nil)
	switch {
	case err != nil:
		return "unknown"
	case match.Matched:
		return "fault"
	}
	return "none"
}
