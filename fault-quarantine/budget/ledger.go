package budget

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Ledger counts nodes against limits, node by node: what one change costs does not
// depend on how many nodes there are. It is for one goroutine at a time.
type Ledger struct {
	accounts []account
	nodes    map[string]Node
}

// NewLedger counts these nodes.
func NewLedger(limits []Limit, nodes ...Node) *Ledger {
	l := &Ledger{nodes: make(map[string]Node, len(nodes))}
	for _, limit := range limits {
		l.accounts = append(l.accounts, account{Limit: limit, groups: map[string]*tally{}})
	}
	for _, n := range nodes {
		l.Set(n)
	}
	return l
}

// Set counts a node as it is now.
func (l *Ledger) Set(n Node) {
	l.Remove(n.Name)
	l.nodes[n.Name] = n
	for _, a := range l.accounts {
		t := a.group(n.Labels)
		if t.nodes++; n.Counted || n.InSession {
			t.population++
		}
		if n.InSession {
			t.begin(n)
		}
	}
}

// Remove counts a node no more.
func (l *Ledger) Remove(name string) {
	n, known := l.nodes[name]
	if !known {
		return
	}
	delete(l.nodes, name)
	for _, a := range l.accounts {
		t := a.group(n.Labels)
		if t.nodes--; n.Counted || n.InSession {
			t.population--
		}
		t.end(n)
		if t.nodes == 0 {
			delete(a.groups, a.value(n.Labels))
		}
	}
}

// Refuses returns which limit has no capacity for a candidate alone, or nothing.
func (l *Ledger) Refuses(c Candidate, now time.Time) string {
	return l.refuses(c, l.open(now))
}

// Admit serves the candidates in their order: each one that fits every limit
// takes its place before the next is looked at, and one that does not fit
// blocks nobody.
func (l *Ledger) Admit(waiting []Candidate, now time.Time) Decision {
	queue := slices.Clone(waiting)
	slices.SortStableFunc(queue, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	d, served := Decision{Refused: map[string]string{}}, l.open(now)
	for _, c := range queue {
		if why := l.refuses(c, served); why != "" {
			d.Refused[c.Name] = why
			continue
		}
		for i, a := range l.accounts {
			served.take(i, a.value(c.Labels), c)
		}
		d.Granted = append(d.Granted, c.Name)
	}
	return d
}

// Fullest is, for each limit, the use of the group with the least capacity left, of several
// that of the one with the most use, as a candidate finds it: a group without a node is
// one node, the candidate.
func (l *Ledger) Fullest(now time.Time) []Use {
	out := make([]Use, len(l.accounts))
	for i, a := range l.accounts {
		var uses []Use
		for _, t := range a.groups {
			uses = append(uses, Use{a.used(t, now), a.allowed(max(t.population, 1))})
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

// round is one look at the ledger: what its groups use, found once, and the candidates
// that it has served.
type round struct {
	now    time.Time
	groups map[place]*seats
}

// place is a group of a limit, by the limit's number and the label's value.
type place struct {
	limit int
	group string
}

type seats struct {
	used, more int // sessions; nodes of the population beyond the ledger's
	holders    []string
}

func (l *Ledger) open(now time.Time) round { return round{now, map[place]*seats{}} }

// of are the seats of a group.
func (r round) of(i int, a account, group string) *seats {
	s, known := r.groups[place{i, group}]
	if !known {
		s = &seats{}
		if t := a.groups[group]; t != nil {
			s.used = a.used(t, r.now)
		}
		r.groups[place{i, group}] = s
	}
	return s
}

func (r round) take(i int, group string, c Candidate) {
	s := r.groups[place{i, group}]
	s.used++
	s.holders = append(s.holders, c.Name)
	if !c.Counted {
		s.more++
	}
}

// refuses returns why the candidate does not fit, or nothing. The candidate counts
// in the population, so that a percentage of no GPU nodes is one of the nodes
// that have faults.
func (l *Ledger) refuses(c Candidate, r round) string {
	why := ""
	for i, a := range l.accounts {
		group := a.value(c.Labels)
		s, t := r.of(i, a, group), a.groups[group]
		population := s.more
		if t != nil {
			population += t.population
		}
		if !c.Counted {
			population++
		}
		if u := (Use{s.used, a.allowed(population)}); u.Used >= u.Allowed && why == "" {
			why = a.refusal(group, u, append(a.holders(t, r.now), s.holders...))
		}
	}
	return why
}

// account is one limit with what it counts per value of its label.
type account struct {
	Limit
	groups map[string]*tally
}

// tally is what a limit counts of one group.
type tally struct {
	nodes, population int
	// sessions are the nodes in quarantine, by their beginning.
	sessions []session
}

// session is one node in quarantine; the zero time is an unknown beginning.
type session struct {
	began time.Time
	name  string
}

func (s session) compare(o session) int {
	return cmp.Or(s.began.Compare(o.began), cmp.Compare(s.name, o.name))
}

func (t *tally) begin(n Node) {
	s := session{n.Began, n.Name}
	at, _ := slices.BinarySearchFunc(t.sessions, s, session.compare)
	t.sessions = slices.Insert(t.sessions, at, s)
}

func (t *tally) end(n Node) {
	if at, found := slices.BinarySearchFunc(t.sessions, session{n.Began, n.Name}, session.compare); found {
		t.sessions = slices.Delete(t.sessions, at, at+1)
	}
}

// value is the group of a node with these labels.
func (a account) value(labels map[string]string) string {
	if a.Label == "" {
		return ""
	}
	return labels[a.Label]
}

func (a account) group(labels map[string]string) *tally {
	value := a.value(labels)
	t, ok := a.groups[value]
	if !ok {
		t = &tally{}
		a.groups[value] = t
	}
	return t
}

// used is how many sessions of a group count.
func (a account) used(t *tally, now time.Time) int {
	unknown, from := a.counted(t, now)
	return unknown + len(t.sessions) - from
}

// counted are the sessions of a group that count: those before unknown, and those from
// from on.
func (a account) counted(t *tally, now time.Time) (unknown, from int) {
	unknown = sort.Search(len(t.sessions), func(i int) bool { return !t.sessions[i].began.IsZero() })
	from = unknown + sort.Search(len(t.sessions)-unknown, func(i int) bool { return a.counts(t.sessions[unknown+i].began, now) })
	return unknown, from
}

// holders are the nodes whose sessions count.
func (a account) holders(t *tally, now time.Time) (names []string) {
	if t == nil {
		return nil
	}
	unknown, from := a.counted(t, now)
	for _, s := range t.sessions[:unknown] {
		names = append(names, s.name)
	}
	for _, s := range t.sessions[from:] {
		names = append(names, s.name)
	}
	return names
}
