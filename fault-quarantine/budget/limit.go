// Package budget decides how many nodes may be taken into quarantine: limits in
// percent and in nodes, over the cluster or per value of a label, at once or
// within a rolling window. It gates new sessions only and is pure.
package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limit bounds the nodes in quarantine. A new session has to fit every limit.
type Limit struct {
	// Name of the limit in messages and metrics.
	Name string `toml:"name"`
	// Percentage of the population, rounded up; nil is no such bound, 0 lets
	// no node in.
	Percentage *int `toml:"percentage" bounds:"0 to 100"`
	// Nodes is a number of nodes; nil is no such bound, 0 lets no node in.
	Nodes *int `toml:"nodes" bounds:"at least 0"`
	// Duration is the rolling window: only sessions that began within it count.
	// Without it every session counts for as long as it lasts.
	Duration time.Duration `toml:"duration" bounds:"at least 0s"`
	// Label makes one budget of its own for each value of this Node label, such
	// as a pool or a zone; nodes without the label share one.
	Label string `toml:"label"`
	// ResetAt makes sessions that began before it count no more.
	ResetAt time.Time `toml:"resetAt"`
}

// Validate checks one limit; at is its key in the configuration.
func (l Limit) Validate(at string) error {
	var problems []error
	if l.Name == "" {
		problems = append(problems, fmt.Errorf("%s.name is empty", at))
	}
	if l.Percentage == nil && l.Nodes == nil {
		problems = append(problems, fmt.Errorf("%s has no limit: set percentage or nodes", at))
	}
	if p := l.Percentage; p != nil && (*p < 0 || *p > 100) {
		problems = append(problems, fmt.Errorf("%s.percentage is %d: must be 0 to 100", at, *p))
	}
	if n := l.Nodes; n != nil && *n < 0 {
		problems = append(problems, fmt.Errorf("%s.nodes is %d: must not be negative", at, *n))
	}
	if l.Duration < 0 {
		problems = append(problems, fmt.Errorf("%s.duration is %s: must not be negative", at, l.Duration))
	}
	return errors.Join(problems...)
}

// allowed is how many of a population may be in quarantine.
func (l Limit) allowed(population int) int {
	n := population
	if p := l.Percentage; p != nil {
		n = (population**p + 99) / 100
	}
	if l.Nodes != nil {
		n = min(n, *l.Nodes)
	}
	return n
}

// counts reports whether a session that began at this time uses the budget; the
// zero time is unknown and counts.
func (l Limit) counts(began, now time.Time) bool {
	if began.IsZero() {
		return true
	}
	return !began.Before(l.ResetAt) && (l.Duration == 0 || now.Sub(began) < l.Duration)
}

// refusal describes why a limit has no capacity.
func (l Limit) refusal(group string, u Use, holders []string) string {
	where, when := "", " are in quarantine"
	if l.Label != "" {
		where = fmt.Sprintf(" of %s=%q", l.Label, group)
	}
	if l.Duration > 0 {
		when = fmt.Sprintf(" were quarantined within %s", l.Duration)
	}
	return fmt.Sprintf("budget %s: %d nodes%s%s, %d allowed", l.Name, u.Used, where, when, u.Allowed) + listed(holders)
}

// maxHolders bounds the names in a refusal.
const maxHolders = 8

// listed names who holds the places, the first by name.
func listed(holders []string) string {
	if len(holders) == 0 {
		return ""
	}
	var first []string
	for _, name := range holders {
		if len(first) == maxHolders && name > first[maxHolders-1] {
			continue
		}
		at, _ := slices.BinarySearch(first, name)
		first = slices.Insert(first, at, name)
		first = first[:min(len(first), maxHolders)]
	}
	more := ""
	if n := len(holders) - maxHolders; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return ", used by " + strings.Join(first, ", ") + more
}
