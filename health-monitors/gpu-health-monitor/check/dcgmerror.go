package check

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

//go:embed table.csv
var builtin string

// Unknown is the name of a number that the table does not have.
const Unknown = "DCGM_FR_UNKNOWN"

// Row is what is known of one error.
type Row struct {
	Name   string
	Action record.Action
	// Source is where the action comes from.
	Source string
	// FromOperator is true if an operator's file has the row: then its action alone decides
	// whether the fault is fatal, and not whether DCGM warns or fails.
	FromOperator bool
}

// Table is what is known of errors.
type Table struct {
	names map[uint]string
	rows  map[string]Row
}

// Builtin is the table that is compiled in.
func Builtin() (Table, error) {
	t := Table{map[uint]string{}, map[string]Row{}}
	lines, err := csv.NewReader(strings.NewReader(builtin)).ReadAll()
	if err != nil {
		return Table{}, fmt.Errorf("reading the table of DCGM errors: %w", err)
	}
	for _, line := range lines[1:] {
		action, err := record.ParseAction(line[2])
		if err != nil {
			return Table{}, fmt.Errorf("reading the table of DCGM errors: %s: %w", line[1], err)
		}
		t.rows[line[1]] = Row{Name: line[1], Action: action, Source: line[3]}
		if number, err := strconv.ParseUint(line[0], 10, 32); err == nil {
			t.names[uint(number)] = line[1]
		}
	}
	return t, nil
}

// Load is the built-in table with the file at path merged over it; an empty path
// is the built-in one alone.
func Load(path string) (Table, error) {
	t, err := Builtin()
	if err != nil || path == "" {
		return t, err
	}
	f, err := os.Open(path)
	if err != nil {
		return Table{}, fmt.Errorf("opening the error mapping: %w", err)
	}
	defer f.Close()
	t, err = t.With(f)
	if err != nil {
		return Table{}, fmt.Errorf("reading the error mapping %s: %w", path, err)
	}
	return t, nil
}

// With is the table with the rows of a file in the earlier NVSentinel's form: a
// name and an action per line. Lines that begin with # are left out.
func (t Table) With(file io.Reader) (Table, error) {
	r := csv.NewReader(file)
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true
	lines, err := r.ReadAll()
	if err != nil {
		return Table{}, err
	}
	rows := maps.Clone(t.rows)
	var problems []error
	for i, line := range lines {
		row, err := parse(line)
		switch {
		case err == nil:
			rows[row.Name] = row
		case i == 0 && heading(line):
		default:
			problems = append(problems, fmt.Errorf("row %d: %w", i+1, err))
		}
	}
	return Table{t.names, rows}, errors.Join(problems...)
}

func parse(line []string) (Row, error) {
	if len(line) < 2 {
		return Row{}, fmt.Errorf("%q is not a name and an action", strings.Join(line, ","))
	}
	name := strings.TrimSpace(line[0])
	if !strings.HasPrefix(name, "DCGM_FR_") && !strings.HasPrefix(name, "GPU_") {
		return Row{}, fmt.Errorf("%q is not the name of a DCGM error, such as DCGM_FR_NVLINK_DOWN", name)
	}
	action, err := record.ParseAction(strings.TrimSpace(line[1]))
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w", name, err)
	}
	return Row{Name: name, Action: action, Source: "error mapping file", FromOperator: true}, nil
}

// heading reports whether a first line is one of column names, which has none of an error.
func heading(line []string) bool {
	return !strings.Contains(line[0], "_FR_") && strings.ToLower(line[0]) == line[0]
}

// Of is the row of an error's number; one that is not known is for a person.
func (t Table) Of(number uint) Row {
	if name, ok := t.names[number]; ok {
		return t.Named(name)
	}
	return t.Named(Unknown)
}

// Named is the row of an error's name; one that is not known is for a person.
func (t Table) Named(name string) Row {
	if row, ok := t.rows[name]; ok {
		return row
	}
	return Row{Name: name, Action: record.ActionContactSupport, Source: "not in the table"}
}

// Rows lists every row by name.
func (t Table) Rows() map[string]Row { return maps.Clone(t.rows) }
