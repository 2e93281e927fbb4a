package budget

import (
	"cmp"
	"slices"
	"time"
)

// Node is what a budget needs to know of a node.
type Node struct {
	Name   string
	Labels map[string]string
	// Counted says whether percentages are taken of this node (a GPU node).
	// Nodes in quarantine and candidates are always counted.
	Counted bool
	// InSession says whether the node is in quarantine, and Began since when;
	// the zero time is unknown.
	InSession bool
	Began     time.Time
}

// Candidate is a node that wants into quarantine.
type Candidate struct {
	Name   string
	Labels map[string]string
	// Counted says whether the node is one that Node.Counted counts.
	Counted bool
	// InSession says that the Node, as it was just read, bears a session.
	InSession bool
	// Order is the place in the queue, the lowest first: the store's append
	// order of the fault.
	Order int64
}

// Use is how far a budget is used.
type Use struct{ Used, Allowed int }

// Decision is what becomes of the candidates.
type Decision struct {
	// Granted are the candidates that fit, the oldest first.
	Granted []string
	// Refused says by name which limit has no room.
	Refused map[string]string
}

// Admit serves the candidates in their order: each one that fits every limit
// takes its place before the next is looked at, and one that does not fit
// blocks nobody.
func Admit(limits []Limit, nodes []Node, waiting []Candidate, now time.Time) Decision {
	accounts := open(limits, nodes, now)
	queue := slices.Clone(waiting)
	slices.SortStableFunc(queue, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	d := Decision{Refused: map[string]string{}}
	for _, c := range queue {
		why := ""
		for _, a := range accounts {
			if why = a.refuses(c); why != "" {
				break
			}
		}
		if why != "" {
			d.Refused[c.Name] = why
			continue
		}
		for _, a := range accounts {
			a.take(c)
		}
		d.Granted = append(d.Granted, c.Name)
	}
	return d
}

// Fullest is, for each limit, the use of the group with the least room left, of several
// that of the one with the most use, as a candidate finds it: a group without a node is
// one node, the candidate.
func Fullest(limits []Limit, nodes []Node, now time.Time) []Use {
	out := make([]Use, len(limits))
	for i, a := range open(limits, nodes, now) {
		var uses []Use
		for _, t := range a.groups {
			uses = append(uses, Use{t.used, a.allowed(max(t.population, 1))})
		}
		if len(uses) == 0 {
			uses = []Use{{Allowed: a.allowed(1)}}
		}
		out[i] = slices.MinFunc(uses, func(a, b Use) int {
			return cmp.Or(cmp.Compare(a.Allowed-a.Used, b.Allowed-b.Used), cmp.Compare(b.Used, a.Used))
		})
	}
	return out
}

// account is one limit with what it counts per value of its label.
type account struct {
	Limit
	groups map[string]*tally
}

type tally struct {
	population, used int
	holders          []string
}

func open(limits []Limit, nodes []Node, now time.Time) []account {
	accounts := make([]account, len(limits))
	for i, l := range limits {
		accounts[i] = account{Limit: l, groups: map[string]*tally{}}
		for _, n := range nodes {
			t := accounts[i].group(n.Labels)
			if n.Counted || n.InSession {
				t.population++
			}
			if n.InSession && l.counts(n.Began, now) {
				t.used++
				t.holders = append(t.holders, n.Name)
			}
		}
	}
	return accounts
}

func (a account) group(labels map[string]string) *tally {
	value := ""
	if a.Label != "" {
		value = labels[a.Label]
	}
	t, ok := a.groups[value]
	if !ok {
		t = &tally{}
		a.groups[value] = t
	}
	return t
}

// refuses says why the candidate does not fit, or nothing. The candidate counts
// in the population, so that a percentage of no GPU nodes is one of the nodes
// that have faults.
func (a account) refuses(c Candidate) string {
	t := a.group(c.Labels)
	population := t.population
	if !c.Counted {
		population++
	}
	u := Use{t.used, a.allowed(population)}
	if u.Used < u.Allowed {
		return ""
	}
	return a.refusal(c.Labels[a.Label], u, slices.Clone(t.holders))
}

func (a account) take(c Candidate) {
	t := a.group(c.Labels)
	t.used++
	t.holders = append(t.holders, c.Name)
	if !c.Counted {
		t.population++
	}
}
