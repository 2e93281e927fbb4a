package sqlstore

import (
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
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
