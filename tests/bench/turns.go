package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// inTurns measures a figure with the present binaries, twice with the others, and with
// the present ones again, so that a load that grows meanwhile falls on both alike. A figure's
// rows are the means of two turns, its baselines the means of all four.
func inTurns(f figure) figure {
	return func(ctx context.Context, o Options) (rows []Row, err error) {
		if o.Against == "" {
			return f(ctx, o)
		}
		other, err := newOther(ctx, o)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.close()) }()
		var turns [4]Table
		for i, options := range []Options{o, other.options, other.options, o} {
			whose := "present"
			if i == 1 || i == 2 {
				whose = "other"
			}
			o.log("turn %d of 4: the %s binaries", i+1, whose)
			options.Against = ""
			turns[i], err = f(ctx, options)
			if err != nil {
				return turns[i], fmt.Errorf("turn %d, %s binaries: %w", i+1, whose, err)
			}
		}
		return merged(turns, other.note()), nil
	}
}

// oneSide measures a figure that runs no binary.
func oneSide(f figure) figure {
	return func(ctx context.Context, o Options) ([]Row, error) {
		rows, err := f(ctx, o)
		for i := range rows {
			if o.Against != "" {
				rows[i].Note = "one side only: it runs no binary; " + rows[i].Note
			}
		}
		return rows, err
	}
}

// place identifies a row of a table: a figure may occur several times.
type place struct {
	figure string
	nth    int
}

// merged are the rows of four turns, of which the first and the last are ours.
func merged(turns [4]Table, note string) []Row {
	var order []place
	found := map[place]*[4]*Row{}
	for i, t := range turns {
		count := map[string]int{}
		for j, r := range t {
			at := place{r.Figure, count[r.Figure]}
			count[r.Figure]++
			if found[at] == nil {
				found[at] = &[4]*Row{}
				order = append(order, at)
			}
			found[at][i] = &t[j]
		}
	}
	var rows []Row
	for _, at := range order {
		rows = append(rows, mean(*found[at], note))
	}
	return rows
}

// mean is one row of four turns.
func mean(turns [4]*Row, note string) Row {
	ours, others := []*Row{turns[0], turns[3]}, []*Row{turns[1], turns[2]}
	first := firstOf(append(ours, others...))
	row := Row{
		Figure: first.Figure, Target: first.Target, Note: first.Note,
		Measured: average(ours, Row.measured), Other: average(others, Row.measured), Baseline: average(turns[:], Row.baseline),
	}
	if first.Target.Under.Valid {
		row.Target.Under = average(ours, Row.under)
	}
	var output []string
	if a := firstOf(ours); a != nil && a.Remarks != "" {
		output = append(output, a.Remarks)
	}
	if b := firstOf(others); b != nil && b.Remarks != "" {
		output = append(output, "against: "+b.Remarks)
	}
	var each [4]any
	for i, r := range turns {
		each[i] = Quantity{}
		if r != nil {
			each[i] = r.Measured
		}
	}
	output = append(output, fmt.Sprintf("turns %s (%s, %s) %s", each[:]...))
	if note != "" {
		output = append(output, note)
	}
	row.Remarks = strings.Join(output, "; ")
	return row
}

func firstOf(rows []*Row) *Row {
	for _, r := range rows {
		if r != nil {
			return r
		}
	}
	return nil
}

func (r Row) measured() Quantity { return r.Measured }

func (r Row) baseline() Quantity { return r.Baseline }

func (r Row) under() Quantity { return r.Target.Under }

// average is the mean of what the rows have; none if they have nothing.
func average(rows []*Row, of func(Row) Quantity) Quantity {
	var out Quantity
	n := 0.0
	for _, r := range rows {
		if r == nil || !of(*r).Valid {
			continue
		}
		q := of(*r)
		out = Quantity{out.Value + q.Value, q.Unit, true}
		n++
	}
	out.Value /= max(n, 1)
	return out
}

// other is the other binaries, as Options.
type other struct {
	options Options
	dir     string
	own     bool // connectors
}

// newOther stands a script before each of the other binaries, which leaves out the flags
// that it does not know. They get the manifests of the tree they lie in, if it is one.
func newOther(ctx context.Context, o Options) (x *other, err error) {
	x = &other{options: o}
	if x.dir, err = os.MkdirTemp("", "nvsentinel-against-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	folder, err := filepath.Abs(o.Against)
	if err != nil {
		return nil, err
	}
	if err := screenAll(ctx, folder, x.dir); err != nil {
		return nil, err
	}
	x.options.Bin = x.dir
	own := filepath.Join(x.dir, ConnectorsProgram)
	if _, err := os.Stat(own); err == nil {
		x.options.Connectors, x.own = own, true
	}
	tree := filepath.Dir(folder)
	if _, err := os.Stat(filepath.Join(tree, "distros/helm/nvsentinel/manifests")); err == nil {
		x.options.Root = tree
	}
	return x, nil
}

// note lists where the run differs from the other binaries' own version.
func (x *other) note() string {
	var notes []string
	if !x.own {
		notes = append(notes, "against: the present connectors")
	}
	if left := leftOut(x.dir); len(left) > 0 {
		notes = append(notes, "against: without "+strings.Join(left, ", "))
	}
	return strings.Join(notes, "; ")
}

func (x *other) close() error { return os.RemoveAll(x.dir) }
