package decision

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// slack is how much longer an event is kept than a rule looks back, so that one
// that arrives late finds its neighbours.
const slack = time.Hour

// Window is what is known of the events of one node, or of all nodes, in the
// order of their times. It is made by NewWindow or NewClusterWindow.
type Window struct {
	rules []rule.Rule
	scope rule.Scope
	facts []*Fact
	byID  map[string]*Fact
	// derived are the faults that the analyzer published, by check and subject.
	derived map[string][]*Fact
	// recoveries are the healthy events among the facts.
	recoveries []*Fact
	// expired are ids of sources that no store has any more.
	expired map[string]bool
	// pruned is when that was done last.
	pruned time.Time
}

// NewWindow makes an empty window of one node for these rules, all OnNode.
func NewWindow(rules []rule.Rule) *Window { return newWindow(rule.OnNode, rules) }

func newWindow(scope rule.Scope, rules []rule.Rule) *Window {
	return &Window{rules: rules, scope: scope, byID: map[string]*Fact{}, derived: map[string][]*Fact{}, expired: map[string]bool{}}
}

// Len counts the events.
func (w *Window) Len() int { return len(w.facts) }

// Add takes an event in, or what has changed of one, and reports whether that can
// change an evaluation, and since when.
func (w *Window) Add(f *Fact) (from time.Time, changed bool) {
	// An event for the record only is no evidence; what the analyzer itself published shows
	// what is published already, whatever its strategy.
	if !f.Record.Acts() && !f.isDerived() {
		return time.Time{}, false
	}
	if f.isDerived() && !f.Record.Event.IsHealthy && f.ofCluster() != (w.scope == rule.OnCluster) {
		return time.Time{}, false
	}
	if old, known := w.byID[f.Record.ID]; known {
		return w.update(old, f)
	}
	w.byID[f.Record.ID] = f
	w.insert(f)
	if f.Record.Event.IsHealthy {
		w.recoveries = append(w.recoveries, f)
		for _, g := range w.facts {
			g.clear(f)
		}
		return f.At, true
	}
	for _, r := range w.recoveries {
		f.clear(r)
	}
	if f.triggers() {
		w.repeat(f)
	}
	if f.isDerived() {
		k := key(f.Record.Event.CheckName, f.Record.Event.Metadata[metadataSubject])
		w.derived[k] = append(w.derived[k], f)
		return time.Time{}, false
	}
	return f.first(), true
}

func (w *Window) insert(f *Fact) {
	i, _ := slices.BinarySearchFunc(w.facts, f, order)
	w.facts = slices.Insert(w.facts, i, f)
	f.horizon = w.horizon(f)
}

// update takes over what the services have written since.
func (w *Window) update(old, f *Fact) (from time.Time, changed bool) {
	if f.Record.Append != 0 && f.Record.Append != old.Record.Append {
		old.Record.Append = f.Record.Append
		for _, r := range w.recoveries { // one may turn out to be behind it
			old.clear(r)
		}
	}
	if f.Record.Revision <= old.Record.Revision {
		return time.Time{}, false
	}
	_, wasOver := old.over()
	_, wasRepaired := old.remediated()
	old.Record.Revision, old.Record.Status, old.Record.Node = f.Record.Revision, f.Record.Status, f.Record.Node
	old.horizon = w.horizon(old)
	for _, other := range old.others {
		other.Record, other.horizon = old.Record, old.horizon
	}
	if at, is := old.remediated(); is && !wasRepaired {
		return at, true
	}
	at, is := old.over()
	return at, is && !wasOver
}

func order(a, b *Fact) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Record.Append, b.Record.Append), strings.Compare(a.Record.ID, b.Record.ID))
}

func key(check, subject string) string { return check + "\x00" + subject }

// horizon is the window of the longest rule that may count the event; a rule
// that is only triggered by it needs it no longer than slack.
func (w *Window) horizon(f *Fact) time.Duration {
	if !f.triggers() {
		return rule.Longest(w.rules)
	}
	var out time.Duration
	for i := range w.rules {
		if r := &w.rules[i]; r.Window > out && f.counts(r) {
			out = r.Window
		}
	}
	return out
}

// counts reports whether the rule may count the event, or be kept still by it.
func (f *Fact) counts(r *rule.Rule) bool { return f.isOneOf(matchesOf(r)) }

// isOneOf reports whether one of the matches may choose the event.
func (f *Fact) isOneOf(matches []*rule.Match) bool {
	_, repaired := f.remediated()
	return slices.ContainsFunc(matches, func(m *rule.Match) bool { return f.resembles(m) && (repaired || !m.Remediated) })
}

// matchesOf lists the matches of all that is not the rule's trigger.
func matchesOf(r *rule.Rule) []*rule.Match {
	counted := r.Counted()
	matches := []*rule.Match{&counted}
	if r.Bursts != nil && r.Bursts.Among != nil {
		matches = append(matches, r.Bursts.Among)
	}
	for i := range r.Sequence {
		matches = append(matches, &r.Sequence[i])
	}
	for i := range r.Unless {
		matches = append(matches, &r.Unless[i].Match)
	}
	return matches
}

// Prune drops what no rule can count any more. Derived faults that are open and
// their sources stay.
func (w *Window) Prune(now time.Time) {
	if d := now.Sub(w.pruned); d >= 0 && d < slack/10 {
		return
	}
	w.pruned = now
	pinned := w.pinned()
	w.drop(func(f *Fact) bool { return now.Sub(f.At) > f.horizon+slack && !pinned[f.Record.ID] })
}

// pinned are the ids of the open derived faults and of their sources.
func (w *Window) pinned() map[string]bool {
	pinned := map[string]bool{}
	for _, d := range w.openDerived() {
		pinned[d.Record.ID] = true
		for _, id := range sourcesOf(d) {
			pinned[id] = true
		}
	}
	return pinned
}

// drop lets facts go.
func (w *Window) drop(old func(*Fact) bool) {
	if !slices.ContainsFunc(w.facts, old) {
		return
	}
	for _, f := range w.facts {
		if old(f) && w.byID[f.Record.ID] == f {
			delete(w.byID, f.Record.ID)
		}
	}
	w.facts = slices.DeleteFunc(w.facts, old)
	w.recoveries = slices.DeleteFunc(w.recoveries, old)
	for k, list := range w.derived {
		if w.derived[k] = slices.DeleteFunc(list, old); len(w.derived[k]) == 0 {
			delete(w.derived, k)
		}
	}
}

// openDerived lists the published faults that are not over, oldest first.
func (w *Window) openDerived() []*Fact {
	var out []*Fact
	for _, list := range w.derived {
		for _, d := range list {
			if _, over := d.over(); !over {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, order)
	return out
}

// Unknown lists sources of open derived faults that are not in the window: the caller looks
// them up and gives them to Add or Expire.
func (w *Window) Unknown() []string {
	var out []string
	for _, d := range w.openDerived() {
		if clearOf(d) != rule.WhenSourcesClose {
			continue
		}
		for _, id := range sourcesOf(d) {
			if w.byID[id] == nil && !w.expired[id] && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// Expire records that a source is in no store any more: its record has expired, which only
// a finished one does.
func (w *Window) Expire(id string) { w.expired[id] = true }

// Clearing is a derived fault whose causes are over.
type Clearing struct {
	Fault *Fact
	// At is when the last cause was closed.
	At time.Time
}

// Clearings lists the derived faults that are over. Faults of one rule, subject
// and node are one to everybody who sees their recovery, so they end together.
func (w *Window) Clearings() []Clearing {
	held := map[string]bool{}
	whose := func(d *Fact) string {
		e := d.Record.Event
		return key(key(e.CheckName, e.Metadata[metadataSubject]), e.NodeName)
	}
	var out []Clearing
	for _, d := range w.openDerived() {
		at, over := w.causesOver(d)
		if !over {
			held[whose(d)] = true
		}
		out = append(out, Clearing{Fault: d, At: later(at, d.At)})
	}
	return slices.DeleteFunc(out, func(c Clearing) bool { return held[whose(c.Fault)] })
}

func (w *Window) causesOver(d *Fact) (time.Time, bool) {
	var last time.Time
	sources := sourcesOf(d)
	if clearOf(d) != rule.WhenSourcesClose || len(sources) == 0 {
		return last, false
	}
	for _, id := range sources {
		if w.expired[id] {
			continue
		}
		s := w.byID[id]
		if s == nil {
			return last, false
		}
		at, over := s.over()
		if !over {
			return last, false
		}
		last = later(last, at)
	}
	return last, true
}

func clearOf(d *Fact) rule.Clear { return rule.Clear(d.Record.Event.Metadata[metadataClear]) }

func sourcesOf(d *Fact) []string {
	return strings.FieldsFunc(d.Record.Event.Metadata[metadataSources], func(r rune) bool { return r == ',' })
}
