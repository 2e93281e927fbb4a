package sqlstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// compiler turns selectors into conditions on the plain columns. The meaning
// is record.Selector.Matches; the conformance suite compares the two.
type compiler struct{ args []any }

// Condition is a selector as a condition on the columns of health_events, with
// its parameters.
func Condition(s record.Selector) (string, []any) {
	var c compiler
	return c.selector(s), c.args
}

// arg adds a parameter and returns its placeholder.
func (c *compiler) arg(v any) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args))
}

// list adds parameters and returns their placeholders.
func (c *compiler) list(values []string) string {
	var out []string
	for _, v := range values {
		out = append(out, c.arg(v))
	}
	return strings.Join(out, ", ")
}

// selector returns the condition of s.
func (c *compiler) selector(s record.Selector) string {
	var and []string
	add := func(set bool, condition func() string) {
		if set {
			and = append(and, condition())
		}
	}
	add(s.Node != "", func() string { return "node = " + c.arg(key(s.Node)) })
	add(s.Strategy != "", func() string { return "strategy = " + c.name(string(s.Strategy)) })
	add(s.Healthy != nil, func() string { return is("is_healthy", *s.Healthy) })
	add(s.Agent != "", func() string { return "agent = " + c.arg(s.Agent) })
	add(s.NotAgent != "", func() string { return "agent <> " + c.arg(s.NotAgent) })
	// The second half is implied; it lets the planner use the partial index.
	add(s.Session != "", func() string { return "session = " + c.arg(key(s.Session)) + " AND session <> ''" })
	add(s.SeqEpoch != "", func() string { return "seq_epoch = " + c.arg(key(s.SeqEpoch)) + " AND seq_epoch <> ''" })
	add(len(s.Quarantined) > 0, func() string { return in(c, "node_quarantined", s.Quarantined) })
	add(len(s.Evictions) > 0, func() string { return in(c, "eviction", s.Evictions) })
	add(len(s.Verdicts) > 0, func() string { return in(c, "verdict", s.Verdicts) })
	add(s.Remediated != "", func() string { return "remediated = " + c.name(s.Remediated) })
	add(s.Repaired != nil, func() string { return is("is_repaired", *s.Repaired) })
	add(s.Open != nil, func() string { return is("is_open", *s.Open) })
	add(len(s.Any) > 0, func() string { return c.any(s.Any) })
	if len(and) == 0 {
		return "1 = 1"
	}
	return strings.Join(and, " AND ")
}

func (c *compiler) any(selectors []record.Selector) string {
	var or []string
	for _, s := range selectors {
		or = append(or, "("+c.selector(s)+")")
	}
	return "(" + strings.Join(or, " OR ") + ")"
}

// is writes booleans as the partial indexes do.
func is(column string, yes bool) string {
	if yes {
		return column
	}
	return "NOT " + column
}

func in[T ~string](c *compiler, column string, values []T) string {
	var list []string
	for _, v := range values {
		list = append(list, c.name(string(v)))
	}
	return column + " IN (" + strings.Join(list, ", ") + ")"
}

// name writes the name of an enumeration as a literal, because a planner does
// not use a partial index for a parameter; anything else is a parameter.
func (c *compiler) name(s string) string {
	for _, r := range s {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return c.arg(s)
		}
	}
	return "'" + s + "'"
}

// maxKey bounds an indexed string, in bytes: the index entries of PostgreSQL
// hold less than 2704 bytes.
const maxKey = 200

// docSize is the room for a usual document.
const docSize = 2048

// row is a record with its place in the store's order.
type row struct {
	rec     record.Record
	digest  string // of the content, in rows to insert
	doc     string
	tx, seq int64
	at      time.Time
	of      *jointUpdate // of rows that are written together with others'
}

// column is one plain column computed from a row, and its type in SQL.
type column struct {
	name, kind string
	value      func(d *Dialect, r *row) any
}

// insertColumns are written once; the insert position is also the first
// change position.
var insertColumns = []column{
	{"id", "text", func(_ *Dialect, r *row) any { return r.rec.ID }},
	{"append_seq", "bigint", func(_ *Dialect, r *row) any { return r.rec.Append }},
	{"insert_tx", "bigint", func(_ *Dialect, r *row) any { return r.tx }},
	{"stored_at", "timestamptz", func(d *Dialect, r *row) any { return d.Time(&r.at) }},
	{"digest", "text", func(_ *Dialect, r *row) any { return r.digest }},
	{"created_at", "timestamptz", func(d *Dialect, r *row) any { return d.Time(&r.rec.CreatedAt) }},
	{"node", "text", func(_ *Dialect, r *row) any { return key(r.rec.Event.NodeName) }},
	{"agent", "text", func(_ *Dialect, r *row) any { return r.rec.Event.Agent }},
	{"strategy", "text", func(_ *Dialect, r *row) any { return string(r.rec.Event.ProcessingStrategy) }},
	{"is_healthy", "boolean", func(_ *Dialect, r *row) any { return r.rec.Event.IsHealthy }},
	{"seq", "text", func(_ *Dialect, r *row) any { return provider.SortableSeq(r.rec.Seq) }},
	{"seq_epoch", "text", func(_ *Dialect, r *row) any { return key(r.rec.SeqEpoch) }},
}

// changeColumns are written by every update.
var changeColumns = []column{
	{"change_tx", "bigint", func(_ *Dialect, r *row) any { return r.tx }},
	{"change_seq", "bigint", func(_ *Dialect, r *row) any { return r.seq }},
	{"changed_at", "timestamptz", func(d *Dialect, r *row) any { return d.Time(&r.at) }},
	{"revision", "bigint", func(_ *Dialect, r *row) any { return r.rec.Revision }},
	{"session", "text", func(_ *Dialect, r *row) any { return key(r.rec.Status.Session) }},
	{"node_quarantined", "text", func(_ *Dialect, r *row) any { return string(r.rec.Status.NodeQuarantined) }},
	{"eviction", "text", func(_ *Dialect, r *row) any { return string(r.rec.Status.UserPodsEvictionStatus.Status) }},
	{"verdict", "text", func(_ *Dialect, r *row) any { return string(r.rec.Reason()) }},
	{"remediated", "text", func(_ *Dialect, r *row) any { return record.Remediated(r.rec.Status) }},
	{"is_repaired", "boolean", func(_ *Dialect, r *row) any { return r.rec.Status.Remediation != nil }},
	{"is_open", "boolean", func(_ *Dialect, r *row) any { return record.Open(r.rec) }},
	{"is_finished", "boolean", func(_ *Dialect, r *row) any { return record.Finished(r.rec) }},
	{"expire_at", "timestamptz", func(d *Dialect, r *row) any { return d.Time(r.rec.ExpireAt) }},
	{"doc", "jsonb", func(_ *Dialect, r *row) any { return r.doc }},
}

// encode gives the row's document.
func (r *row) encode() error {
	doc, err := record.AppendJSON(make([]byte, 0, docSize), r.rec)
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrUnstorable, err)
	}
	r.doc = string(doc)
	return nil
}

// hashed begins a key in the place of a longer text.
const hashed = "sha256:"

// key is an indexed string: long values are replaced by their hash, which
// keeps equality and fits an index.
func key(s string) string {
	if len(s) <= maxKey {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

// set gives the column the value of a row of arrays.
func (col column) set() string {
	value := "rows." + col.name
	if col.kind == "jsonb" {
		value += "::jsonb"
	}
	return col.name + " = " + value
}

// list is a column of all rows, as a slice of what the column's type takes.
func (col column) list(d *Dialect, rows []row) (any, error) {
	switch col.kind {
	case "bigint":
		return listed[int64](d, col, rows)
	case "boolean":
		return listed[bool](d, col, rows)
	case "timestamptz":
		return instants(d, col, rows), nil
	}
	return listed[string](d, col, rows)
}

func listed[T any](d *Dialect, col column, rows []row) ([]T, error) {
	out := make([]T, len(rows))
	for i := range rows {
		value := col.value(d, &rows[i])
		var ok bool
		if out[i], ok = value.(T); !ok {
			return nil, fmt.Errorf("column %s, a %s, was given a %T", col.name, col.kind, value)
		}
	}
	return out, nil
}

// instants lists a column of times; nil is NULL.
func instants(d *Dialect, col column, rows []row) []*time.Time {
	out := make([]*time.Time, len(rows))
	for i := range rows {
		if t, ok := col.value(d, &rows[i]).(time.Time); ok {
			out[i] = &t
		}
	}
	return out
}
