package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Unit of a quantity; it decides how the number is printed.
type Unit int

// Units.
const (
	// Seconds are printed as µs, ms or s.
	Seconds Unit = iota
	// PerSecond is a rate of events.
	PerSecond
	// Bytes are printed in MB (10^6).
	Bytes
	// Millicores are thousandths of a CPU.
	Millicores
	// PerMinute is a rate of requests.
	PerMinute
	// Times is a plain number.
	Times
)

// Quantity is a measured number; the zero value is "none".
type Quantity struct {
	Value float64
	Unit  Unit
	Valid bool
}

func seconds(d time.Duration) Quantity { return Quantity{d.Seconds(), Seconds, true} }

func rate(n int, d time.Duration) Quantity {
	return Quantity{float64(n) / d.Seconds(), PerSecond, true}
}

func bytesOf(n int64) Quantity { return Quantity{float64(n), Bytes, true} }

// String prints the quantity absolutely.
func (q Quantity) String() string {
	switch {
	case !q.Valid:
		return "-"
	case q.Unit == PerSecond:
		return fmt.Sprintf("%.0f/s", q.Value)
	case q.Unit == Bytes:
		return fmt.Sprintf("%.1f MB", q.Value/1e6)
	case q.Unit == Millicores:
		return fmt.Sprintf("%.1f m", q.Value)
	case q.Unit == Times && q.Value < 10:
		return fmt.Sprintf("%.2f", q.Value)
	case q.Unit == Times:
		return fmt.Sprintf("%.1f", q.Value)
	case q.Unit == PerMinute:
		return fmt.Sprintf("%.1f/min", q.Value)
	case q.Value < 1e-3:
		return fmt.Sprintf("%.0f µs", q.Value*1e6)
	case q.Value < 1:
		return fmt.Sprintf("%.2f ms", q.Value*1e3)
	}
	return fmt.Sprintf("%.2f s", q.Value)
}

// Target is what a figure is to reach; the zero value is none.
type Target struct {
	// Within bounds measured/baseline from above, AtLeast from below. Under and Over bound the
	// measured value itself. One of the four is set.
	Within, AtLeast float64
	Under, Over     Quantity
}

// String returns the target in words.
func (t Target) String() string {
	switch {
	case t.Within > 0:
		return fmt.Sprintf("within %gx", t.Within)
	case t.AtLeast > 0:
		return fmt.Sprintf("at least %gx", t.AtLeast)
	case t.Under.Valid:
		return "under " + t.Under.String()
	case t.Over.Valid:
		return "at least " + t.Over.String()
	}
	return "-"
}

// Row is one figure.
type Row struct {
	Figure             string
	Measured, Baseline Quantity
	// Other is what the other binaries did, in a run against them.
	Other  Quantity
	Target Target
	// Note is what the figure does not show, Remarks what else was observed in this run.
	Note, Remarks string
}

// remark joins the note and the remarks.
func (r Row) remark() string {
	return strings.Join(slices.DeleteFunc([]string{r.Note, r.Remarks}, func(s string) bool { return s == "" }), "; ")
}

// Ratio is the measured value divided by the baseline; 0 without a baseline.
func (r Row) Ratio() float64 {
	if !r.Baseline.Valid || r.Baseline.Value == 0 {
		return 0
	}
	return r.Measured.Value / r.Baseline.Value
}

// change is ours divided by what the other binaries did; - without others.
func (r Row) change() string {
	if !r.Other.Valid || !r.Measured.Valid || r.Other.Value == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", r.Measured.Value/r.Other.Value)
}

// Verdict is met, missed, or - without a target.
func (r Row) Verdict() string {
	var met bool
	switch t := r.Target; {
	case t.Within > 0:
		met = r.Ratio() > 0 && r.Ratio() <= t.Within
	case t.AtLeast > 0:
		met = r.Ratio() >= t.AtLeast
	case t.Under.Valid:
		met = r.Measured.Value < t.Under.Value
	case t.Over.Valid:
		met = r.Measured.Value >= t.Over.Value
	default:
		return "-"
	}
	if met {
		return "met"
	}
	return "missed"
}

// Table is a run's figures.
type Table []Row

// String draws the table; what other binaries did has columns of its own.
func (t Table) String() string {
	against := slices.ContainsFunc(t, func(r Row) bool { return r.Other.Valid })
	line := func(figure, ours string, others []string, rest ...string) []string {
		if !against {
			others = nil
		}
		return slices.Concat([]string{figure, ours}, others, rest)
	}
	lines := [][]string{line("figure", "ours", []string{"against", "change"}, "floor", "ratio", "target", "", "")}
	for _, r := range t {
		lines = append(lines, line(r.Figure, r.Measured.String(), []string{r.Other.String(), r.change()},
			r.Baseline.String(), multiple(r.Ratio()), r.Target.String(), r.Verdict(), r.remark()))
	}
	last := len(lines[0]) - 1
	widths := make([]int, last)
	for _, line := range lines {
		for i := range widths {
			widths[i] = max(widths[i], len([]rune(line[i])))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		var text strings.Builder
		for i, w := range widths {
			text.WriteString(line[i] + strings.Repeat(" ", w-len([]rune(line[i]))+2))
		}
		b.WriteString(strings.TrimRight(text.String()+line[last], " ") + "\n")
	}
	return b.String()
}

// multiple prints a ratio; 0 is none.
func multiple(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x)
}
