package labeling_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestCorners: what the configuration and single labels do. TestNodeHistories covers the
// rest.
func TestCorners(t *testing.T) {
	const dcgm, driver, kata = nodemark.DCGMVersionLabel, nodemark.DriverInstalledLabel, nodemark.KataEnabledLabel
	gpu := map[string]string{"nvidia.com/gpu.present": "true"}
	pod := func(image string, ready bool) []labeling.Pod {
		return []labeling.Pod{{Images: []string{image}, Ready: ready}}
	}
	for name, tc := range map[string]struct {
		view   labeling.View
		policy labeling.Policy
		key    string
		want   labeling.Ruling
	}{
		"nothing":                      {labeling.View{}, labeling.Policy{}, dcgm, labeling.Ruling{Reason: labeling.Absent}},
		"not Ready, which may be":      {labeling.View{DCGM: pod("dcgm:4.1", false)}, labeling.Policy{}, dcgm, labeling.Ruling{Value: "4.x", Reason: labeling.Seen}},
		"not Ready, which may not be":  {labeling.View{DCGM: pod("dcgm:4.1", false)}, labeling.Policy{RequireReady: true}, dcgm, labeling.Ruling{Reason: labeling.NotReady}},
		"DCGM 3 in another registry":   {labeling.View{DCGM: pod("host:5000/nvidia/dcgm:3.3.9-1-ubuntu22.04", true)}, labeling.Policy{}, dcgm, labeling.Ruling{Value: "3.x", Reason: labeling.Seen}},
		"an image with another name":   {labeling.View{DCGM: pod("nvcr.io/dcgm-exporter:4.1", true)}, labeling.Policy{}, dcgm, labeling.Ruling{Reason: labeling.NoVersion}},
		"a tag without a version":      {labeling.View{DCGM: pod("nvcr.io/dcgm:latest", true)}, labeling.Policy{}, dcgm, labeling.Ruling{Reason: labeling.NoVersion}},
		"DCGM is assumed":              {labeling.View{Labels: gpu, DCGM: pod("dcgm:3.1", true)}, labeling.Policy{AssumeDCGM: "4.x"}, dcgm, labeling.Ruling{Value: "4.x", Reason: labeling.Assumed}},
		"DCGM is assumed of GPU nodes": {labeling.View{}, labeling.Policy{AssumeDCGM: "4.x"}, dcgm, labeling.Ruling{Reason: labeling.Absent}},
		"the driver is assumed":        {labeling.View{Labels: gpu}, labeling.Policy{AssumeDriver: true}, driver, labeling.Ruling{Value: "true", Reason: labeling.Assumed}},
		"the driver of GPU nodes":      {labeling.View{}, labeling.Policy{AssumeDriver: true}, driver, labeling.Ruling{Reason: labeling.Absent}},
		"Kata by a label of one's own": {labeling.View{Labels: map[string]string{"x/kata": "Enabled"}}, labeling.Policy{KataLabel: "x/kata"}, kata, labeling.Ruling{Value: "true", Reason: labeling.Seen}},
		"Kata that is off":             {labeling.View{Labels: map[string]string{"x/kata": "off"}}, labeling.Policy{KataLabel: "x/kata"}, kata, labeling.Ruling{Value: "false", Reason: labeling.Seen}},
		"a value that is none of ours": {labeling.View{Labels: map[string]string{driver: "maybe"}, DriverAnywhere: true}, labeling.Policy{}, driver, labeling.Ruling{Reason: labeling.Gone}},
	} {
		t.Run(name, func(t *testing.T) {
			v := labeling.Decide(tc.view, tc.policy, nil, testkit.Start)
			i := slices.IndexFunc(v.Rulings, func(r labeling.Ruling) bool { return r.Key == tc.key })
			if i < 0 {
				t.Fatalf("no ruling: %v", v.Rulings)
			}
			tc.want.Key = tc.key
			if diff := cmp.Diff(tc.want, v.Rulings[i]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAClockThatWasSetBack makes no wait longer than the grace.
func TestAClockThatWasSetBack(t *testing.T) {
	view := labeling.View{Labels: map[string]string{nodemark.DriverInstalledLabel: "true"}, DriverAnywhere: true}
	policy := labeling.Policy{Grace: 10 * time.Minute}
	first := labeling.Decide(view, policy, nil, testkit.Start)
	second := labeling.Decide(view, policy, first.Memory, testkit.Start.Add(-time.Hour))
	if second.Again != policy.Grace {
		t.Errorf("it looks again in %s", second.Again)
	}
	third := labeling.Decide(view, policy, second.Memory, testkit.Start.Add(-time.Hour+policy.Grace))
	if len(third.Changes(view.Labels)) == 0 {
		t.Errorf("the label stays: %v", third.Rulings)
	}
}

// slice is a ResourceSlice of a DRA driver with so many devices.
func slice(driver string, devices int) any {
	out := []any{}
	for i := range devices {
		out = append(out, map[string]any{"name": fmt.Sprint("gpu-", i)})
	}
	return map[string]any{"spec": map[string]any{"driver": driver, "devices": out}}
}

// TestExpressions: what an expression may use, and what becomes of an answer that is
// no count.
func TestExpressions(t *testing.T) {
	node := map[string]any{
		"metadata": map[string]any{"name": "n1", "labels": map[string]any{"count": "8", "zone": "a", "padded": "08"}},
		"status":   map[string]any{"allocatable": map[string]any{"x.com/dev": "4", "cpu": "7910m"}, "capacity": map[string]any{"x.com/dev": "5"}},
	}
	slices := []any{slice("gpu.nvidia.com", 3), slice("gpu.nvidia.com", 5), slice("nic.example.com", 2)}
	for expression, want := range map[string]string{
		`node.metadata.labels['count']`:                 "8",
		`int(node.metadata.labels['count'])`:            "8",
		`int(node.status.allocatable['x.com/dev']) + 1`: "5",
		`max_of`: "undeclared reference",
		`math.greatest(node.status.capacity['x.com/dev'], 1)`: "5",
		`node.status.?allocatable[?'none']`:                   "no information about devices",
		`node.status.?capacity[?'x.com/dev']`:                 "5",
		`'a' in node.metadata.labels ? dyn(1) : dyn(null)`:    "no information about devices",
		`int(node.status.allocatable['none'])`:                "no such key",
		`node.metadata.labels['zone']`:                        "returned string",
		`node.metadata.labels['padded']`:                      "returned string",
		`-1`:                                                  "returned -1",
		`1000000`:                                             "returned 1000000",
		`'8'`:                                                 "returns string, not int",
		`sum(resourceSlices.filter(s, s.spec.driver == 'gpu.nvidia.com').map(s, size(s.spec.devices)))`: "8",
		`sum([])`:    "0",
		`sum(['a'])`: "whole numbers",
		`lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000))).size()`: "cost limit",
	} {
		got := ""
		classes, err := labeling.Parse("f", class("x", expression))
		if err == nil {
			var n int
			n, err = classes[0].Count(node, slices)
			got = fmt.Sprint(n)
			if reads := strings.Contains(expression, "resourceSlices"); classes[0].ReadsSlices() != reads {
				t.Errorf("%s reads ResourceSlices: %v", expression, !reads)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%s gives %s, want %s", expression, got, want)
		}
		if errors.Is(err, labeling.ErrNoSource) != (want == "no information about devices") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	if _, there := node["metadata"].(map[string]any)["labels"].(map[string]any)["count"].(string); !there {
		t.Error("the node was changed")
	}
}

// class is a file of one class.
func class(name, expression string, more ...string) string {
	return fmt.Sprintf("[[classes]]\nname = %q\ngroupingLabels = ['pool']\ncurrentExpression = '''%s'''\n%s\n", name, expression, strings.Join(more, "\n"))
}

// TestFilesAreStrict: what is wrong is reported, by file, class and key.
func TestFilesAreStrict(t *testing.T) {
	many := strings.Builder{}
	for i := range 17 {
		many.WriteString(class(fmt.Sprint("c", i), "1"))
	}
	for text, want := range map[string]string{
		"enabled = 3":                                        "incompatible types",
		"enabled =":                                          `f: line 1 (key "enabled"): `,
		"enabeld = false":                                    `f: line 1: unknown key "enabeld"`,
		class("gpu", "1", "groupBy = ['a']"):                 `unknown key "classes.groupBy"`,
		class("${env:HOME}", "1"):                            `f: key "classes[0].name": ${env:HOME}: a reference is allowed only in keys of type secret`,
		class("GPU", "1"):                                    `f: classes[0] ("GPU"): name "GPU" is not`,
		class("gpu", "1 +"):                                  "currentExpression: ERROR: <input>:1:",
		class("gpu", "'a'.matches('[') ? 1 : 2"):             `f: classes[0] ("gpu"): currentExpression: error parsing regexp`,
		class("gpu", ""):                                     "currentExpression is missing",
		class("gpu", "1") + class("gpu", "1"):                "another class has the label nvsentinel.dgxc.nvidia.com/gpu.count.current",
		"[[classes]]\nname = 'gpu'\ncurrentExpression = '1'": "groupingLabels is empty",
		"[[classes]]\nname = 'gpu'\ncurrentExpression = '1'\ngroupingLabels = ['a', 'a']":                                        "has a duplicate label",
		"[[classes]]\nname = 'gpu'\ncurrentExpression = '1'\ngroupingLabels = ['a b']":                                           "is not a valid label key",
		"[[classes]]\nname = 'gpu'\ncurrentExpression = '1'\ngroupingLabels = ['" + nodemark.CountLabelsOf("gpu").Current + "']": "is computed from the group",
		class("gpu", "1", "[classes.labels]\ncurrent = 'example.com/gpus'"):                                                      "labels.current",
		class("gpu", "1", "[classes.labels]\nexpected = 'example.com/gpus'"):                                                     "labels.expected",
		class("gpu", "1", "[[classes.expectedCountOverrides]]\ncount = 4"):                                                       "matchLabels is empty",
		class("gpu", "1", "[[classes.expectedCountOverrides]]\ncount = -4\nmatchLabels = {a = 'b'}"):                             "count -4 is not",
		class("gpu", strings.Repeat("1+", 9<<10)+"1"):                                                                            "exceeds limit",
		class("gpu", "1", strings.Repeat("[[classes.expectedCountOverrides]]\nmatchLabels = {a = 'b'}\n", 1025)):                 "1025 expectedCountOverrides",
		many.String(): "17 classes",
	} {
		if _, err := labeling.Parse("f", text); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%v, want %q in it, of:\n%.400s", err, want, text)
		}
	}
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"all are off":     {"enabled = false\n" + class("gpu", "1"), nil},
		"one is off":      {class("gpu", "1", "enabled = false") + class("nic", "1"), []string{"nic.count.expected"}},
		"named by labels": {class("GPUs", "1", "[classes.labels]\ncurrent = 'nvsentinel.dgxc.nvidia.com/gpu.count.current'\nexpected = 'nvsentinel.dgxc.nvidia.com/gpu.count.expected'"), []string{"gpu.count.expected"}},
		"the built-in":    {labeling.Builtin, []string{"gpu.count.expected", "nic.count.expected"}},
	} {
		classes, err := labeling.Parse("f", tc.text)
		var got []string
		for _, c := range classes {
			got = append(got, strings.TrimPrefix(c.Labels.Expected, "nvsentinel.dgxc.nvidia.com/"))
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestGroupUpdatesNodesOnMajorityChange: of 5,000 nodes nobody is looked at
// again for what changes nothing, and all of a group for what does.
func TestGroupUpdatesNodesOnMajorityChange(t *testing.T) {
	const nodes = 5000
	g := labeling.NewGroups()
	labelled := func(group string, count int) []labeling.Labelled {
		return []labeling.Labelled{{Class: "gpu", Group: group, Count: count}, {Class: "nic", Count: 4}}
	}
	reported := 0
	for i := range nodes {
		reported += len(g.Set(fmt.Sprint(i), labelled(fmt.Sprint("g", i%2), 8)))
	}
	if reported != 2 { // the first of each group
		t.Errorf("%d nodes were told", reported)
	}
	for _, step := range []struct {
		what     string
		node     string
		labelled []labeling.Labelled
		notified int
		most0    int
	}{
		{"the same", "0", labelled("g0", 8), 0, 8},
		{"fewer than others", "0", labelled("g0", 7), 0, 8},
		{"more than others, which one alone does not prove", "2", labelled("g0", 9), 0, 8},
		{"more than others, twice", "4", labelled("g0", 12), nodes / 2, 9},
		{"alone again", "2", labelled("g0", 8), nodes / 2, 8},
		{"as the others", "4", labelled("g0", 8), 0, 8},
		{"more, by another group's", "1", labelled("g0", 16), 0, 8},
		{"gone", "1", nil, 0, 8},
		{"gone twice", "1", nil, 0, 8},
	} {
		if got := len(g.Set(step.node, step.labelled)); got != step.notified {
			t.Errorf("%s: %d nodes were told, want %d", step.what, got, step.notified)
		}
		if most := g.Most("gpu", "g0"); most != step.most0 {
			t.Errorf("%s: the most is %d, want %d", step.what, most, step.most0)
		}
	}
	for i, want := range []int{4, 8, 6} { // one, two and three nodes
		g.Set(fmt.Sprint("small-", i), labelled("small", []int{4, 8, 6}[i]))
		if most := g.Most("gpu", "small"); most != want {
			t.Errorf("the most of %d nodes is %d, want %d", i+1, most, want)
		}
	}
	if g.Most("nic", "") != 0 || g.Most("gpu", "none") != 0 {
		t.Error("nodes without a group have one")
	}
}
