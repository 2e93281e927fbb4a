package decision

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// Reason is why a rule did or did not derive a fault from an event that it was
// asked about. It is a label value of a counter.
type Reason string

// Reasons.
const (
	// Matched: the pattern of the rule is found, so a fault with the name of the rule is reported. Action: follow
	// the recommended action of the rule. A fault with `clear = "manual"` ends with `nvsentinel clear <node>
	// <record>`.
	Matched Reason = "Matched"
	// NoSubject: the health event lacks a value of a key in `by` of the rule, so no fault is derived. Action:
	// none.
	NoSubject Reason = "NoSubject"
	// Stale: the health event is older than the window of the rule, so no fault is derived. Action: none.
	Stale Reason = "Stale"
	// AlreadyPublished: a fault of the rule with the same subject is open and younger than the window, or was
	// cleared after the health event, so no further fault is derived. Action: none.
	AlreadyPublished Reason = "AlreadyPublished"
	// TooFew: the window has fewer events, values or bursts than the rule needs, or not its sequence, so no fault
	// is derived. Action: none.
	TooFew Reason = "BelowThreshold"
	// Suppressed: an event of `unless` of the rule is in the window, so no fault is derived. Action: none.
	Suppressed Reason = "Suppressed"
	// CausesOver: all events that the rule found are over and the rule has `clear = "sources"`, so no fault is
	// derived. Action: none.
	CausesOver Reason = "SourcesCleared"
)

// Reasons lists every reason, in a fixed order.
func Reasons() []Reason {
	return []Reason{Matched, NoSubject, Stale, AlreadyPublished, TooFew, Suppressed, CausesOver}
}

// Finding is a rule's answer about one event and one subject.
type Finding struct {
	Rule    *rule.Rule
	Reason  Reason
	Trigger *Fact
	// Subject is the values of the rule's by, for example "gpu=GPU_UUID:GPU-1 code=79".
	Subject string
	// Sources are the events that were counted and the trigger, oldest first.
	Sources []*Fact
	// previous is the fault of the same rule and subject before, within the window.
	previous string
}

// maxSubjects bounds the subjects of one event, as the ingest endpoint bounds its
// entities times codes.
const maxSubjects = 4096

// Evaluate asks every rule about the events from a time on and returns the
// answers in the order of the events. It changes nothing.
func (w *Window) Evaluate(from, now time.Time) []Finding {
	var out []Finding
	fired := map[string]time.Time{}
	for i := w.since(from); i < len(w.facts); i++ {
		t := w.facts[i]
		if !t.triggers() {
			continue
		}
		for j := range w.rules {
			r := &w.rules[j]
			if !t.matches(&r.When, t.At) {
				continue
			}
			q := question{w: w, rule: r, place: i, trigger: t}
			for _, f := range q.evaluate(fired, now) {
				if f.Reason == Matched {
					fired[key(r.Name, f.Subject)] = t.At
				}
				out = append(out, f)
			}
		}
	}
	return out
}

// since is the place of the first event that is not before a time.
func (w *Window) since(from time.Time) int {
	return sort.Search(len(w.facts), func(i int) bool { return !w.facts[i].At.Before(from) })
}

// Settle marks what Evaluate found from a time on as published.
func (w *Window) Settle(from time.Time) {
	for _, f := range w.facts[w.since(from):] {
		f.evaluated = true
	}
}

// Settled reports whether an event was evaluated and settled, and the Window has reported
// every change since.
func (w *Window) Settled(id string) bool {
	f := w.byID[id]
	return f != nil && f.evaluated
}

// question is one rule and one event that it is asked about.
type question struct {
	w       *Window
	rule    *rule.Rule
	place   int // of the trigger in the window
	trigger *Fact
	subject []string // values of the rule's by
	facts   []*Fact  // the window up to the trigger
	// machines are the newest of the other nodes, once one is asked for.
	machines map[string]record.NodeIdentity
}

func (q *question) evaluate(fired map[string]time.Time, now time.Time) []Finding {
	r, t := q.rule, q.trigger
	answer := Finding{Rule: r, Trigger: t}
	if now.Sub(t.At) > r.Window {
		answer.Reason = Stale
		return []Finding{answer}
	}
	subjects := product(t, r.By)
	if len(subjects) == 0 {
		answer.Reason = NoSubject
		return []Finding{answer}
	}
	out := make([]Finding, 0, len(subjects))
	for _, s := range subjects {
		q.subject = s
		answer.Subject = name(r, s)
		since, previous, open := q.before(answer.Subject)
		at, just := fired[key(r.Name, answer.Subject)]
		answer.previous = previous
		if open || just && t.At.Sub(at) <= r.Window || !t.At.After(since) {
			answer.Reason = AlreadyPublished
		} else {
			q.facts, q.machines = q.back(since), nil
			answer.Reason, answer.Sources = q.decide()
		}
		out = append(out, answer)
	}
	return out
}

// before looks at what was published of the rule and subject: when the last of
// it was cleared, which was the newest within the window, and whether one is
// open.
func (q *question) before(subject string) (since time.Time, previous string, open bool) {
	var newest *Fact
	for _, d := range q.w.derived[key(q.rule.Name, subject)] {
		if d.At.Before(q.trigger.At.Add(-q.rule.Window)) {
			continue
		}
		if at, over := d.over(); over {
			since = later(since, at)
		} else {
			open = true
		}
		if newest == nil || order(newest, d) < 0 {
			newest = d
		}
	}
	if newest != nil {
		previous = newest.Record.ID
	}
	return since, previous, open
}

// back is the events of the window up to the trigger, without those that
// an earlier fault has answered.
func (q *question) back(answered time.Time) []*Fact {
	begin, all := q.trigger.At.Add(-q.rule.Window), q.w.facts[:q.place+1]
	return all[sort.Search(len(all), func(i int) bool { return !all[i].At.Before(begin) && all[i].At.After(answered) }):]
}

// evidence reports whether a fact can be counted at all.
func (q *question) evidence(f *Fact) bool {
	return f.triggers() && fault.Compare(f.Record.Node, q.machine(f.Record.Event.NodeName)) != fault.AnotherMachine
}

// machine is what a node was at the newest event up to the trigger that the rule
// looks at.
func (q *question) machine(node string) record.NodeIdentity {
	if node == q.trigger.Record.Event.NodeName {
		return q.trigger.Record.Node
	}
	if q.machines == nil {
		q.machines = map[string]record.NodeIdentity{}
		matches := append(matchesOf(q.rule), &q.rule.When)
		for _, f := range q.facts {
			if f.triggers() && f.isOneOf(matches) {
				q.machines[f.Record.Event.NodeName] = f.Record.Node
			}
		}
	}
	return q.machines[node]
}

// shares reports whether a fact has the subject's values of these keys.
func (q *question) shares(f *Fact, keys []rule.Key) bool {
	for i, k := range q.rule.By {
		if slices.Contains(keys, k) && !f.has(k, q.subject[i]) {
			return false
		}
	}
	return true
}

// choose lists the facts that match and share.
func (q *question) choose(m *rule.Match, by []rule.Key) []*Fact {
	var out []*Fact
	for _, f := range q.facts {
		if f.matches(m, q.trigger.At) && q.shares(f, by) && q.evidence(f) {
			out = append(out, f)
		}
	}
	return out
}

// decide answers for one subject.
func (q *question) decide() (Reason, []*Fact) {
	found, enough := q.count()
	if !enough {
		return TooFew, nil
	}
	for i := range q.rule.Unless {
		u := &q.rule.Unless[i]
		if len(q.choose(&u.Match, u.By)) > 0 {
			return Suppressed, nil
		}
	}
	if !slices.Contains(found, q.trigger) {
		found = append(found, q.trigger)
	}
	still := func(f *Fact) bool { _, over := f.over(); return !over }
	if q.rule.Clear == rule.WhenSourcesClose && !slices.ContainsFunc(found, still) {
		return CausesOver, nil
	}
	return Matched, found
}

// count finds what the rule counts and reports whether it is enough.
func (q *question) count() ([]*Fact, bool) {
	counted := q.rule.Counted()
	switch {
	case q.rule.Bursts != nil:
		return q.bursts(&counted)
	case q.rule.Sequence != nil:
		return q.sequence()
	}
	found := q.choose(&counted, q.rule.By)
	n := len(found)
	if q.rule.Distinct != nil {
		values := map[string]bool{}
		for _, f := range found {
			for _, v := range product(f, q.rule.Distinct) {
				values[strings.Join(v, "\x00")] = true
			}
		}
		n = len(values)
	}
	return found, n >= q.rule.Wanted()
}

// sequence finds the steps backwards, each as late as possible.
func (q *question) sequence() ([]*Fact, bool) {
	var found []*Fact
	step := len(q.rule.Sequence) - 1
	for i := len(q.facts) - 1; i >= 0 && step >= 0; i-- {
		f := q.facts[i]
		if f.matches(&q.rule.Sequence[step], q.trigger.At) && q.shares(f, q.rule.By) && q.evidence(f) {
			found = append(found, f)
			step--
		} else if f == q.trigger {
			return nil, false
		}
	}
	slices.Reverse(found)
	return found, step < 0
}

// product lists the combinations of the fact's values of the keys; one empty
// one for no keys, none if a value is missing.
func product(f *Fact, keys []rule.Key) [][]string {
	out := [][]string{nil}
	for _, k := range keys {
		var next [][]string
		for _, v := range f.values(k) {
			for _, head := range out {
				if len(next) < maxSubjects {
					next = append(next, append(slices.Clone(head), v))
				}
			}
		}
		out = next
	}
	return out
}

// name writes a subject.
func name(r *rule.Rule, values []string) string {
	if len(r.By) == 0 {
		return string(r.Scope)
	}
	parts := make([]string, len(r.By))
	for i, k := range r.By {
		parts[i] = string(k) + "=" + values[i]
	}
	return strings.Join(parts, " ")
}
