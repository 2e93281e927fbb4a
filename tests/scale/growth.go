package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/tests/bench"
)

const (
	// far is a size that no test machine can hold: the measured sizes are extrapolated to it.
	far = 100_000
	// farTarget is what the control plane may take there, in bytes.
	farTarget = 20e9
	// total is the figure of all services of the control plane together.
	total = "control plane: memory"
)

// figure is one number at one size.
type figure struct {
	// nodes is the size, name the same at each size.
	nodes int
	name  string
	value bench.Quantity
	// growth bounds value by what the smaller sizes let one expect: the straight line
	// through them, or what one alone makes in proportion. 0 does not bound it.
	growth float64
	// level means that the value of the smallest size is expected at every size.
	level bool
	// trifle is the value below which growth does not count.
	trifle float64
	// target bounds value where growth does not, relative to baseline if that is given.
	target   bench.Target
	baseline bench.Quantity
	// part means that the figure is memory of the control plane, and counts in total.
	part bool
	note string
}

func seconds(d time.Duration) bench.Quantity {
	return bench.Quantity{Value: d.Seconds(), Unit: bench.Seconds, Valid: true}
}

func bytesOf(n int64) bench.Quantity {
	return bench.Quantity{Value: float64(n), Unit: bench.Bytes, Valid: true}
}

func number(n float64) bench.Quantity {
	return bench.Quantity{Value: n, Unit: bench.Times, Valid: true}
}

func perSecond(n float64) bench.Quantity {
	return bench.Quantity{Value: n, Unit: bench.PerSecond, Valid: true}
}

// within bounds a figure by a multiple of its baseline; none requires it to be 0.
func within(times float64) bench.Target { return bench.Target{Within: times} }

func none() bench.Target { return bench.Target{Under: number(1)} }

// millicores is processor time over a while.
func millicores(used, over time.Duration) bench.Quantity {
	return bench.Quantity{Value: 1000 * used.Seconds() / over.Seconds(), Unit: bench.Millicores, Valid: true}
}

// quantile is the smallest value that a share q of all values do not exceed.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// table puts each figure beside what the smaller sizes let one expect of it, and
// adds the sums and where they lead.
func table(figures []figure) bench.Table {
	figures = slices.Concat(figures, sums(figures))
	var t bench.Table
	for _, f := range figures {
		row := bench.Row{Figure: fmt.Sprintf("%d nodes: %s", f.nodes, f.name), Measured: f.value, Baseline: f.baseline, Target: f.target, Note: f.note}
		if baseline, ok := expected(figures, f); ok {
			row.Baseline, row.Target = baseline, bench.Target{Within: f.growth}
		}
		t = append(t, row)
	}
	return append(t, outlook(figures)...)
}

// expected is what a figure would be if it grew as it did at the smaller sizes.
func expected(figures []figure, of figure) (bench.Quantity, bool) {
	var smaller []point
	for _, f := range figures {
		if f.name == of.name && f.nodes < of.nodes {
			smaller = append(smaller, point{float64(f.nodes), f.value.Value})
		}
	}
	if of.growth == 0 || of.value.Value < of.trifle || len(smaller) == 0 {
		return bench.Quantity{}, false
	}
	q := of.value
	switch {
	case of.level:
		q.Value = smaller[0].y
	case len(smaller) == 1:
		q.Value = smaller[0].y * float64(of.nodes) / smaller[0].x
	default:
		// Of a line that falls nothing follows but that it does not grow.
		q.Value = max(through(smaller).at(float64(of.nodes)), smaller[len(smaller)-1].y)
	}
	return q, true
}

// sums adds the memory of the control plane up, by size, where it was measured.
func sums(figures []figure) []figure {
	bytes, parts := map[int]float64{}, map[int]int{}
	var sizes []int
	for _, f := range figures {
		if !f.part {
			continue
		}
		if parts[f.nodes] == 0 {
			sizes = append(sizes, f.nodes)
		}
		bytes[f.nodes] += f.value.Value
		parts[f.nodes]++
	}
	var out []figure
	for _, n := range sizes {
		if parts[n] == 1 { // the gateways alone
			continue
		}
		out = append(out, figure{
			nodes: n, name: total, value: bench.Quantity{Value: bytes[n], Unit: bench.Bytes, Valid: true}, growth: bendAllowed, note: fmt.Sprintf("%d services, all replicas", parts[n]),
		})
	}
	return out
}

// bendAllowed is by how much memory may be above the straight line.
const bendAllowed = 1.1

// outlook returns the straight line through the totals, and its value at a size that was not
// measured.
func outlook(figures []figure) bench.Table {
	var points []point
	for _, f := range figures {
		if f.name == total {
			points = append(points, point{float64(f.nodes), f.value.Value})
		}
	}
	if len(points) < 2 {
		return nil
	}
	l := through(points)
	q := func(bytes float64) bench.Quantity {
		return bench.Quantity{Value: bytes, Unit: bench.Bytes, Valid: true}
	}
	note := fmt.Sprintf("the straight line through %d sizes", len(points))
	return bench.Table{
		{Figure: "control plane: memory for each 1,000 nodes", Measured: q(1000 * l.slope), Note: note},
		{Figure: "control plane: memory without nodes", Measured: q(l.constant), Note: note},
		{Figure: fmt.Sprintf("control plane: memory at %d nodes, not measured", far), Measured: q(l.at(far)), Target: bench.Target{Under: q(farTarget)}, Note: note},
	}
}

// point is a figure's value y at a size x.
type point struct{ x, y float64 }

// line is a straight line.
type line struct{ constant, slope float64 }

func (l line) at(x float64) float64 { return l.constant + l.slope*x }

// through is the line with the least squares of distances to the points, of which
// there are at least two sizes.
func through(points []point) line {
	var x, y float64
	for _, p := range points {
		x += p.x / float64(len(points))
		y += p.y / float64(len(points))
	}
	var xx, xy float64
	for _, p := range points {
		xx += (p.x - x) * (p.x - x)
		xy += (p.x - x) * (p.y - y)
	}
	slope := xy / xx
	return line{y - slope*x, slope}
}
