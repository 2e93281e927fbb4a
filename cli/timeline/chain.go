package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Kind is what a step of a chain is.
type Kind string

// Kinds, in the order of an event's walk.
const (
	Line       Kind = "line"
	Event      Kind = "event"
	Signal     Kind = "signal"
	Confirmed  Kind = "confirmed"
	Verdict    Kind = "evaluation"
	Quarantine Kind = "quarantine"
	Drain      Kind = "drain"
	Repair     Kind = "object"
	Progress   Kind = "progress"
	Outcome    Kind = "outcome"
	Recovery   Kind = "recovery"
	Cleared    Kind = "cleared"
	// Waiting is what has not happened yet.
	Waiting Kind = "waiting"
)

// Mood is how good a step is, for colours.
type Mood string

// Moods.
const (
	Plain Mood = ""
	Good  Mood = "good"
	Bad   Mood = "bad"
	Alert Mood = "alert"
)

// Step is one thing that happened to a fault, or is waited for.
type Step struct {
	Kind Kind `json:"kind"`
	// At is when; zero is unknown. Objects' times are whole seconds.
	At   time.Time `json:"at,omitzero"`
	Text string    `json:"text"`
	Mood Mood      `json:"mood,omitempty"`
	// Record and Object are what to look for: a record's id; kind/name.
	Record string `json:"record,omitempty"`
	Object string `json:"object,omitempty"`
}

// Chain is one fault from its line to its end.
type Chain struct {
	Record string `json:"record"`
	// Open is true while the fault still holds the node.
	Open  bool   `json:"open"`
	Steps []Step `json:"steps"`
}

// builder knows what chains refer to.
type builder struct {
	byID    map[string]record.Record
	objects map[string]Object
	facts   Facts
}

func newBuilder(f Facts) builder {
	b := builder{byID: map[string]record.Record{}, objects: map[string]Object{}, facts: f}
	for _, r := range f.Records {
		b.byID[r.ID] = r
	}
	for _, o := range f.Objects {
		b.objects[o.UID] = o
	}
	return b
}

// chain returns the chain of one fault.
func (b builder) chain(r record.Record) Chain {
	c := Chain{Record: r.ID, Open: record.Open(r), Steps: b.confirmed(r, report(r.Event, r.ID, r.CreatedAt))}
	for _, part := range []func(record.Record) []Step{b.verdict, b.drain, b.repair, b.end, b.waiting} {
		c.Steps = append(c.Steps, part(r)...)
	}
	return c
}

// lineAgents publish the raw line as their message.
var lineAgents = map[string]bool{"syslog-health-monitor": true}

// report is the line and the event made of it.
func report(e record.Event, id string, at time.Time) []Step {
	text := e.Message
	if !lineAgents[e.Agent] {
		text = e.Agent + " reports: " + text
	}
	var about []string
	if e.BootID() != "" {
		about = append(about, "boot "+e.BootID())
	}
	if n, since := e.Repeats(); n > 1 {
		about = append(about, fmt.Sprintf("newest of %d repeats within %s", n, e.GeneratedTimestamp.Sub(since).Round(100*time.Millisecond)))
	}
	return []Step{
		{Kind: Line, At: e.GeneratedTimestamp, Text: text},
		{Kind: Event, At: at, Record: id, Text: strings.Join(append([]string{gist(e)}, about...), "; ")},
	}
}

// gist is an event in one line: check, codes, action, what it touches.
func gist(e record.Event) string {
	var b strings.Builder
	b.WriteString(e.CheckName)
	if len(e.ErrorCode) > 0 {
		b.WriteString(" " + strings.Join(e.ErrorCode, ","))
	}
	if !e.IsHealthy {
		b.WriteString(", " + string(e.EffectiveAction()))
		if !e.IsFatal {
			b.WriteString(", not fatal")
		}
	}
	const shown = 4
	for i, x := range e.EntitiesImpacted {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", len(e.EntitiesImpacted)-shown)
			break
		}
		b.WriteString(" " + x.EntityType + ":" + x.EntityValue)
	}
	return b.String()
}

func (b builder) verdict(r record.Record) []Step {
	v := r.Status.QuarantineVerdict
	if v == nil {
		return nil
	}
	s := Step{Kind: Verdict, At: v.At, Text: string(v.Reason)}
	if len(v.RuleSets) > 0 {
		s.Text += " by rule " + quoted(v.RuleSets)
	}
	if effects := marks(v.Effects); effects != "" {
		s.Text += ": " + effects
	}
	s.Text = joined(s.Text, cmp.Or(v.Detail, explain(v.Reason)))
	if v.Reason == record.Held {
		s.Mood = Alert
	}
	steps := []Step{s}
	if q := r.Status.NodeQuarantined; q != record.NotQuarantined {
		text := string(q)
		if q == record.QuarantineCanceled { // what it was then is not stored any more
			text = "in quarantine (later " + text + ")"
		}
		steps = append(steps, Step{Kind: Quarantine, At: instant(r.Status.QuarantineFinishTimestamp), Text: text})
	}
	return steps
}

func quoted(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("%q", n))
	}
	return strings.Join(out, ", ")
}

// marks is what a verdict asks of the Node.
func marks(e record.Effects) string {
	var out []string
	if e.Cordon {
		out = append(out, "cordon")
	}
	for _, x := range e.Taints {
		out = append(out, "taint "+x.Key+"="+x.Value+":"+x.Effect)
	}
	for _, x := range e.Labels {
		out = append(out, "label "+x.Key+"="+x.Value)
	}
	return strings.Join(out, ", ")
}

func (b builder) drain(r record.Record) []Step {
	e := r.Status.UserPodsEvictionStatus
	if e.Status == record.EvictionUnset {
		return nil
	}
	s := Step{Kind: Drain, At: instant(r.Status.DrainFinishTimestamp), Text: joined(string(e.Status), e.Message)}
	if e.Status == record.EvictionFailed {
		s.Mood = Bad
	}
	return []Step{s}
}

func instant(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// Underway is a run of a repair chain that has not come to its end.
type Underway struct {
	Run   string    `json:"run"`
	Node  string    `json:"node"`
	Chain string    `json:"chain"`
	Began time.Time `json:"began"`
	// Step is the one that is due, number Nth of Steps; empty before the run was looked
	// at for the first time.
	Step   string             `json:"step,omitempty"`
	Nth    int                `json:"nth,omitempty"`
	Steps  int                `json:"steps,omitempty"`
	State  v1alpha1.StepState `json:"state,omitempty"`
	Reason string             `json:"reason,omitempty"`
}

// Refused is a repair chain or template that cannot be used.
type Refused struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// RefusedBy returns what the conditions of a chain or template report against it.
func RefusedBy(kind, name string, conditions []metav1.Condition) (Refused, bool) {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return Refused{}, false
	}
	return Refused{kind, name, c.Message}, true
}

// misconfigured reports whether a run ended because its chain or a template of it is wrong.
func misconfigured(end *metav1.Condition) bool {
	return end != nil && end.Status == metav1.ConditionFalse &&
		slices.Contains([]string{v1alpha1.ReasonMisconfigured, v1alpha1.ReasonRejected}, end.Reason)
}

// outcomeUnknown reports whether a run ended because nobody knows what a step did to the node.
func outcomeUnknown(end *metav1.Condition) bool {
	return end != nil && end.Status == metav1.ConditionFalse && end.Reason == v1alpha1.ReasonOutcomeUnknown
}

// EndedRun is a run that did not repair its node, and that proves nothing about the node.
type EndedRun struct {
	Run     string `json:"run"`
	Node    string `json:"node"`
	Chain   string `json:"chain"`
	Message string `json:"message"`
}

// unrepairedBy are the runs of some end whose nodes have no newer run, by node.
func unrepairedBy(runs []v1alpha1.RepairRun, ended func(*metav1.Condition) bool) (out []EndedRun) {
	newest := map[string]*v1alpha1.RepairRun{}
	for i := range runs {
		node := v1alpha1.NodeOf(&runs[i])
		if last := newest[node]; last == nil || last.CreationTimestamp.Before(&runs[i].CreationTimestamp) {
			newest[node] = &runs[i]
		}
	}
	for node, run := range newest {
		if end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); ended(end) {
			out = append(out, EndedRun{Run: run.Name, Node: node, Chain: run.Spec.Chain, Message: joined(end.Reason, end.Message)})
		}
	}
	slices.SortFunc(out, func(a, b EndedRun) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// underway are the runs that have not come to their end, the oldest first.
func underway(runs []v1alpha1.RepairRun) (out []Underway) {
	for i := range runs {
		run := &runs[i]
		if end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); end != nil && end.Status != metav1.ConditionUnknown {
			continue
		}
		u := Underway{Run: run.Name, Node: v1alpha1.NodeOf(run), Chain: run.Spec.Chain, Began: run.CreationTimestamp.UTC(), Steps: len(run.Status.Steps)}
		open := func(s v1alpha1.StepStatus) bool {
			return s.State == v1alpha1.StepWaiting || s.State == v1alpha1.StepRunning
		}
		if i := slices.IndexFunc(run.Status.Steps, open); i >= 0 {
			s := run.Status.Steps[i]
			u.Step, u.Nth, u.State, u.Reason = s.Name, i+1, s.State, joined(s.Reason, s.Message)
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Underway) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Run, b.Run)) })
	return out
}

// runs lists the runs that are under way, and what no run can begin with.
func (p *page) runs(f Fleet) {
	for _, r := range f.Refused {
		p.line("%s", p.paint(Alert, "! "+plain(fmt.Sprintf("%s %s is not accepted: %s", r.Kind, r.Name, truncate(r.Message)))))
	}
	for _, m := range f.Misconfigured {
		text := fmt.Sprintf("RepairRun %s did not repair node %s: RepairChain %s is misconfigured: %s", m.Run, m.Node, m.Chain, truncate(m.Message))
		p.line("%s", p.paint(Alert, "! "+plain(text)))
	}
	for _, u := range f.OutcomeUnknown {
		text := fmt.Sprintf("RepairRun %s ended with an unknown outcome on node %s: %s", u.Run, u.Node, truncate(u.Message))
		p.line("%s", p.paint(Alert, "! "+plain(text)))
	}
	list(p, []string{"RUN", "NODE", "CHAIN", "FOR", "STEP", "WHY"}, f.Runs, func(r Underway) (Mood, []string) {
		step := "not reconciled yet, check that repair-chain is running"
		if r.Step != "" {
			step = fmt.Sprintf("%d of %d: %s %s", r.Nth, r.Steps, r.Step, r.State)
		}
		return Plain, []string{plain(r.Run), plain(r.Node), plain(r.Chain), span(f.At.Sub(r.Began)), plain(step), truncate(r.Reason)}
	})
}
