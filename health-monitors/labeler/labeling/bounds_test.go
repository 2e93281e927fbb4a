package labeling_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestAFileMayFillItsBounds: and not pass them by one.
func TestAFileMayFillItsBounds(t *testing.T) {
	override := func(count int) string {
		return fmt.Sprintf("[[classes.expectedCountOverrides]]\ncount = %d\nmatchLabels = {a = 'b'}\n", count)
	}
	classes := func(n int) (text string) {
		for i := range n {
			text += class(fmt.Sprint("c", i), "1")
		}
		return text
	}
	for name, c := range map[string]struct{ text, want string }{
		"16 classes":                  {classes(16), ""},
		"17 classes":                  {classes(17), "there are 17 classes, at most 16 are allowed"},
		"a name of 32 letters":        {class(strings.Repeat("a", 32), "1"), ""},
		"a name of 33 letters":        {class(strings.Repeat("a", 33), "1"), "is not up to 32 lower-case letters"},
		"1024 overrides":              {class("gpu", "1", strings.Repeat(override(8), 1024)), ""},
		"1025 overrides":              {class("gpu", "1", strings.Repeat(override(8), 1025)), "there are 1025 expectedCountOverrides, at most 1024 are allowed"},
		"none expected":               {class("gpu", "1", override(0)), ""},
		"less than none expected":     {class("gpu", "1", override(-1)), `f: classes[0] ("gpu"): expectedCountOverrides[0].count -1 is not from 0 to 999999`},
		"the most expected":           {class("gpu", "1", override(999_999)), ""},
		"more than the most expected": {class("gpu", "1", override(1_000_000)), "count 1000000 is not from 0 to 999999"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := labeling.Parse("f", c.text)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestACountThatIsBelieved: from none to the most, and what lies beyond is an error.
func TestACountThatIsBelieved(t *testing.T) {
	for count, want := range map[string]string{
		"-1": "use 0 to 999999", "0": "", "999999": "", "1000000": "use 0 to 999999",
	} {
		classes, err := labeling.Parse("f", class("gpu", count))
		if err != nil {
			t.Fatal(err)
		}
		n, err := classes[0].Count(nil, nil)
		if want == "" && (err != nil || fmt.Sprint(n) != count) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s is counted as %d, %v; want %q", count, n, err, want)
		}
	}
}

// TestLabelValues: what they mean for the other nodes of the group, and for the node
// itself. A label that is no count from 0 to the maximum means nothing.
func TestLabelValues(t *testing.T) {
	classes, err := labeling.Parse("f", class("gpu", "1"))
	if err != nil {
		t.Fatal(err)
	}
	gpu, keys := classes[0], nodemark.CountLabelsOf("gpu")
	group := gpu.Group(map[string]string{"pool": "a"})
	for name, c := range map[string]struct {
		pool, group, current, expected string
		labelled                       int // -1: nothing
		below                          bool
	}{
		"as many as it should have":       {"a", group, "8", "8", 8, false},
		"one fewer":                       {"a", group, "7", "8", 7, true},
		"one more":                        {"a", group, "9", "8", 9, false},
		"none of one":                     {"a", group, "0", "1", 0, true},
		"none, and none expected":         {"a", group, "0", "0", 0, false},
		"the most":                        {"a", group, "999999", "999999", 999_999, false},
		"one fewer than the most":         {"a", group, "999998", "999999", 999_998, true},
		"more than the most":              {"a", group, "1000000", "1000001", -1, false},
		"fewer than none":                 {"a", group, "-1", "8", -1, false},
		"no count":                        {"a", group, "many", "8", -1, false},
		"none is labelled":                {"a", group, "", "8", -1, false},
		"nothing is expected":             {"a", group, "8", "", 8, false},
		"none, and nothing is expected":   {"a", group, "0", "", 0, false},
		"of another group":                {"b", group, "7", "8", -1, true},
		"of no group yet":                 {"a", "", "7", "8", -1, true},
		"of a group that it has left":     {"", group, "7", "8", -1, true},
		"without a group, then and now":   {"", "", "7", "8", -1, true},
		"no count of a group, or another": {"b", group, "many", "8", -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{"pool": c.pool, keys.Group: c.group, keys.Current: c.current, keys.Expected: c.expected}
			labelled, ok := gpu.LabeledAs(labels)
			if ok != (c.labelled >= 0) || ok && labelled != (labeling.Labelled{Class: "gpu", Group: group, Count: c.labelled}) {
				t.Errorf("it says %+v, %t; want %d", labelled, ok, c.labelled)
			}
			if below := gpu.Below(labels); below != c.below {
				t.Errorf("below what is expected: %t, want %t", below, c.below)
			}
		})
	}
}

// TestAnOverrideMatchesAllItsLabels: and a label that is not there has no value, not
// an empty one.
func TestAnOverrideMatchesAllItsLabels(t *testing.T) {
	override := labeling.Override{MatchLabels: map[string]string{"pool": "odd", "spare": ""}, Count: 4}
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"both":                            {map[string]string{"pool": "odd", "spare": "", "zone": "a"}, "4"},
		"one has another value":           {map[string]string{"pool": "even", "spare": ""}, "8"},
		"one is not there":                {map[string]string{"spare": ""}, "8"},
		"the one without a value is not":  {map[string]string{"pool": "odd"}, "8"},
		"the one without a value has one": {map[string]string{"pool": "odd", "spare": "true"}, "8"},
		"neither":                         {nil, "8"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := labeling.Policy{Classes: []labeling.Class{{Name: "gpu", Labels: nodemark.CountLabelsOf("gpu"), Overrides: []labeling.Override{override}}}}
			view := labeling.View{Labels: c.labels, Ready: true, Counts: map[string]labeling.Count{"gpu": {Value: 8}}}
			labels := labeling.Decide(view, policy, nil, testkit.Start).Apply(c.labels)
			if got := labels[nodemark.CountLabelsOf("gpu").Expected]; got != c.want {
				t.Errorf("%s are expected, want %s", got, c.want)
			}
		})
	}
}

// TestThePodThatCounts: an update has several on a node, in any order.
func TestThePodThatCounts(t *testing.T) {
	pod := func(name, image string, ready, ending bool, age time.Duration) labeling.Pod {
		return labeling.Pod{Name: name, Images: []string{image}, Ready: ready, Ending: ending, Created: testkit.Start.Add(-age)}
	}
	const old, late = "dcgm:3.3.9", "dcgm:4.1.0"
	for name, pods := range map[string][2]labeling.Pod{ // the second one counts
		"Ready before not Ready, though it ends": {pod("a", old, false, false, 0), pod("b", late, true, true, time.Hour)},
		"one that stays before one that ends":    {pod("b", old, true, true, 0), pod("a", late, true, false, time.Hour)},
		"the newer of two that are Ready":        {pod("b", old, true, false, time.Hour), pod("a", late, true, false, time.Hour-1)},
		"the newer of two that end":              {pod("b", old, false, true, time.Hour), pod("a", late, false, true, 0)},
		"of two of one age the last by name":     {pod("a", old, true, false, 0), pod("b", late, true, false, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][]labeling.Pod{{pods[0], pods[1]}, {pods[1], pods[0]}} {
				labels := labeling.Decide(labeling.View{DCGM: order}, labeling.Policy{}, nil, testkit.Start).Apply(nil)
				if diff := cmp.Diff("4.x", labels[nodemark.DCGMVersionLabel]); diff != "" {
					t.Errorf("%v: the version (-want +got):\n%s", order, diff)
				}
			}
		})
	}
}
