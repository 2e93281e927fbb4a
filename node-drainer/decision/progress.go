package decision

import (
	"fmt"
	"strings"
)

// Bounds of a progress message.
const (
	maxShown = 5
	maxNote  = 120
)

func count(left, total int) string { return fmt.Sprintf("%d of %d pods left", left, total) }

// progress describes how far the drain is and what it waits for. It contains no
// durations, so that it changes only when a pod does. The total is remembered
// in the message itself, before.
func progress(left []pending, where, before string) string {
	total := len(left)
	var oldLeft, oldTotal int
	if n, err := fmt.Sscanf(before, "%d of %d pods left", &oldLeft, &oldTotal); err == nil && n == 2 {
		total = max(total, oldTotal)
	}
	var b strings.Builder
	b.WriteString(count(len(left), total) + where)
	for i, p := range left[:min(len(left), maxShown)] {
		b.WriteString(separator(i))
		b.WriteString(name(p.pod))
		b.WriteString(" (" + p.describe() + ")")
	}
	b.WriteString(more(len(left)))
	return b.String()
}

// more counts what is not shown of so many.
func more(all int) string {
	if all <= maxShown {
		return ""
	}
	return fmt.Sprintf(" and %d more", all-maxShown)
}

func separator(i int) string {
	if i == 0 {
		return ": "
	}
	return ", "
}

func (p pending) describe() string {
	switch p.phase {
	case budgetBlocked:
		return p.refused()
	case errored:
		return "eviction failed: " + cut(p.note)
	case stuck:
		return "not terminated after its grace period"
	case terminating:
		return "terminating"
	case awaitingDeadline:
		return "may complete until " + p.note
	case returned:
		return "recreated on the node by its " + cut(p.note)
	case neverCompletes:
		return "may complete, but the pods of a " + cut(p.note) + " never do"
	case awaitingCompletion:
		return "may complete"
	case toEvict, toDelete:
	}
	return "next"
}

func (p pending) refused() string {
	switch len(p.budgets) {
	case 0:
		return "blocked by a disruption budget"
	case 1:
		return "blocked by disruption budget " + cut(p.budgets[0])
	}
	return fmt.Sprintf("blocked by having %d disruption budgets, of which the eviction API supports one: %s",
		len(p.budgets), cut(strings.Join(p.budgets, " ")))
}

func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote], "") + "..."
}
