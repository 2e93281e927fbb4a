package scale

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestGrowthIsMarked: what grows as the nodes do is as expected, what bends upwards is
// not, and of one size nothing is expected.
func TestGrowthIsMarked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		of    func(nodes float64) float64
		level bool
		want  string // the verdicts at 1,000, 3,000 and 10,000 nodes
	}{
		{"in proportion", func(n float64) float64 { return n }, false, "- met met"},
		{"a line with a constant", func(n float64) float64 { return 50_000 + n }, false, "- met met"},
		{"the square", func(n float64) float64 { return n * n }, false, "- missed missed"},
		{"a line that bends late", func(n float64) float64 { return n + max(0, n-5000) }, false, "- met missed"},
		{"level, and is", func(float64) float64 { return 7 }, true, "- met met"},
		{"level, and grows", func(n float64) float64 { return n }, true, "- missed missed"},
	} {
		var figures []figure
		for _, n := range []int{1000, 3000, 10_000} {
			figures = append(figures, figure{nodes: n, name: "x", value: number(tc.of(float64(n))), growth: 1.1, level: tc.level})
		}
		var got []string
		for _, row := range table(figures) {
			got = append(got, row.Verdict())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

// TestTriflesAreIgnored: below a number no growth means anything.
func TestTriflesAreIgnored(t *testing.T) {
	rows := table([]figure{{nodes: 1000, name: "x", value: number(1), growth: 1.1, trifle: 20}, {nodes: 3000, name: "x", value: number(19), growth: 1.1, trifle: 20}})
	if got := rows[1].Verdict(); got != "-" {
		t.Errorf("verdict %s", got)
	}
}

// TestOutlook: the parts add up by size, and their line leads to what was not measured.
func TestOutlook(t *testing.T) {
	var figures []figure
	for _, n := range []int{1000, 3000, 10_000} {
		for _, part := range []string{"a", "b"} {
			figures = append(figures, figure{nodes: n, name: part, value: bytesOf(5e8 + int64(n)*50_000), part: true})
		}
		figures = append(figures, figure{nodes: n, name: "beside", value: bytesOf(1e12)})
	}
	got := map[string]string{}
	for _, row := range table(figures) {
		got[row.Figure] = row.Measured.String() + " " + row.Verdict()
	}
	for figure, want := range map[string]string{
		"1000 nodes: control plane: memory": "1100.0 MB -", "10000 nodes: control plane: memory": "2000.0 MB met",
		"control plane: memory for each 1,000 nodes": "100.0 MB -", "control plane: memory without nodes": "1000.0 MB -",
		"control plane: memory at 100000 nodes, not measured": "11000.0 MB met",
	} {
		if got[figure] != want {
			t.Errorf("%s: %q, want %q", figure, got[figure], want)
		}
	}
}

// TestTheGatewaysAloneAreNoControlPlane: no total is made of one part.
func TestTheGatewaysAloneAreNoControlPlane(t *testing.T) {
	figures := []figure{{nodes: 1000, name: "gateway", value: bytesOf(1), part: true}, {nodes: 3000, name: "gateway", value: bytesOf(2), part: true}}
	if rows := table(figures); len(rows) != 2 {
		t.Errorf("rows %v", rows)
	}
}

func TestBusiestSecond(t *testing.T) {
	begin := time.Unix(0, 0)
	var pulses []pulse
	for i, calls := range []float64{0, 0, 10, 110, 120, 120, 120} {
		pulses = append(pulses, pulse{at: begin.Add(time.Duration(i) * time.Second / 2), calls: calls})
	}
	if got := busiest(pulses, func(p pulse) float64 { return p.calls }); got != 110 {
		t.Errorf("%v calls in the busiest second, want 110", got)
	}
	if got := busiest(pulses[:1], func(p pulse) float64 { return p.calls }); got != 0 {
		t.Errorf("%v calls of one look, want 0", got)
	}
}

// TestObjectsAreOfRealSize: figures of memory mean nothing with objects that are small.
func TestObjectsAreOfRealSize(t *testing.T) {
	node, err := realNode(7).Marshal()
	if err != nil || len(node) < 10_000 || len(node) > 16_000 {
		t.Errorf("a node has %d bytes, %v", len(node), err)
	}
	for j := range 10 {
		pod := realPod(7, j)
		pod.Status = running(pod, time.Now())
		text, err := pod.Marshal()
		if err != nil || len(text) < 2500 || len(text) > 8000 {
			t.Errorf("pod %s has %d bytes, %v", pod.Name, len(text), err)
		}
	}
	if a, b := realNode(1), realNode(2); a.Status.NodeInfo.SystemUUID == b.Status.NodeInfo.SystemUUID || a.Spec.ProviderID == b.Spec.ProviderID {
		t.Errorf("two nodes are one machine: %v", a.Status.NodeInfo)
	}
}

// TestAHeartbeatChangesNothingElse: a condition that seemed to have changed would be news
// to every service.
func TestAHeartbeatChangesNothingElse(t *testing.T) {
	before, after := healthy(time.Now()), healthy(time.Now().Add(time.Minute))
	for i := range before {
		if before[i].LastHeartbeatTime.Equal(&after[i].LastHeartbeatTime) {
			t.Errorf("%s was not looked at again", before[i].Type)
		}
		before[i].LastHeartbeatTime = after[i].LastHeartbeatTime
		if before[i] != after[i] {
			t.Errorf("%v became %v", before[i], after[i])
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []int{5, 1, 4, 2, 3}
	for q, want := range map[float64]int{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if fmt.Sprint(values) != "[5 1 4 2 3]" {
		t.Errorf("the values were sorted: %v", values)
	}
}
