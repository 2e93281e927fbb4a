package decision_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// world is a node, its records and its maintenance objects, in memory.
type world struct {
	t       *testing.T
	now     time.Time
	start   time.Time
	repairs action.Policy
	node    decision.Node
	records map[string]record.Record
	objects map[string]*decision.Object
	// unread makes reading objects fail.
	unread decision.Reason
	pods   []string
	uids   int
	policy decision.Policy
	// annotation is what the Node showed last.
	annotation string
}

func newWorld(t *testing.T) *world {
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatalf("compiling the default actions: %v", err)
	}
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	policy := decision.Policy{RecoveryWithin: decision.DefaultRecoveryWithin, UnrepairedAfter: decision.DefaultUnrepairedAfter}
	return &world{t: t, policy: policy, now: start, start: start, repairs: repairs, records: map[string]record.Record{}, objects: map[string]*decision.Object{}}
}

// setActions changes the default actions by a TOML document: of an action that
// exists the keys that are given, any other and a chain as a whole.
func (w *world) setActions(doc string) {
	var tables map[string]toml.Primitive
	md, err := toml.Decode(doc, &tables)
	if err != nil {
		w.t.Fatalf("reading the actions: %v", err)
	}
	actions := action.Default()
	for name, table := range tables {
		c := actions[name]
		var whole struct{ Chain string }
		if err := md.PrimitiveDecode(table, &whole); err == nil && whole.Chain != "" {
			c = action.Config{}
		}
		if err := md.PrimitiveDecode(table, &c); err != nil {
			w.t.Fatalf("reading the action %s: %v", name, err)
		}
		actions[name] = c
	}
	if keys := md.Undecoded(); len(keys) > 0 {
		w.t.Fatalf("unknown key %s", keys[0])
	}
	if w.repairs, err = action.Compile(actions, action.Templates{}, nil); err != nil {
		w.t.Fatalf("compiling the actions: %v", err)
	}
}

// view is what the handler would read.
func (w *world) view() decision.View {
	v := decision.View{Node: w.node, PodsBack: w.pods}
	v.Records = slices.SortedFunc(maps.Values(w.records), func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	if cur, ok := decision.Current(v.Records); ok {
		switch o, found := w.objects[cur.Attempt.Name]; {
		case w.unread != "":
			v.Object = decision.Object{Unread: w.unread, Health: healthrule.Evaluate(nil, nil, fmt.Errorf("%s", w.unread))}
		case found:
			v.Object = *o
		default:
			v.Object = decision.Object{Presence: decision.Absent}
		}
	}
	v.Boots = fault.BootsOf(v.Records, w.node.Session, w.node.Identity.BootID)
	return v
}

// apply writes what a step asks for, as strictly as a store does.
func (w *world) apply(s decision.Step) {
	for _, x := range s.Writes {
		r := w.records[x.ID]
		if r.Revision != x.Revision {
			w.t.Errorf("%s: revision %d, stored %d", x.ID, x.Revision, r.Revision)
		}
		if err := record.CheckWrite(record.FaultRemediation, r.Status, x.Status); err != nil {
			w.t.Errorf("%s: %v", x.ID, err)
		}
		r.Status, r.Revision = x.Status, r.Revision+1
		w.records[x.ID] = r
	}
}

func (w *world) create(c *decision.Creation) {
	if _, taken := w.objects[c.Attempt.Name]; taken {
		w.t.Errorf("%s is created twice", c.Attempt.Name)
	}
	w.uids++
	w.objects[c.Attempt.Name] = &decision.Object{
		Presence: decision.Present, UID: "uid-" + strconv.Itoa(w.uids), CreatedAt: w.now, Session: c.Attempt.Session, Group: c.Attempt.Group,
		Ordinal: c.Attempt.Ordinal, Health: healthrule.Result{State: healthrule.Unknown, Reason: "NoMatchesFulfilled"},
	}
}

// run takes steps until nothing is left to do, or until the process "crashes"
// after a step of the given reason.
func (w *world) run(out *strings.Builder, crash decision.Reason) {
	for range 20 {
		s := decision.Next(w.view(), w.repairs, w.policy, w.now)
		w.print(out, s)
		w.apply(s)
		if s.RepeatOffender != nil && len(s.Writes) == 0 {
			w.node.RepeatOffender = *s.RepeatOffender
		}
		if s.Create != nil {
			w.create(s.Create)
		}
		if crash != "" && s.Reason == crash {
			fmt.Fprintln(out, "-- crash --")
			return
		}
		if len(s.Writes) == 0 && s.Create == nil {
			return
		}
	}
	w.t.Error("no end after 20 steps")
}

func (w *world) print(out *strings.Builder, s decision.Step) {
	fmt.Fprintf(out, "%s", s.Reason)
	for _, x := range s.Writes {
		fmt.Fprintf(out, " %s=%s", x.ID, statusText(x.Status))
	}
	if s.Create != nil {
		fmt.Fprintf(out, " %s %s for %s", s.Create.Attempt.Kind, s.Create.Attempt.Name, s.Create.Record.ID)
	}
	if s.After > 0 {
		fmt.Fprintf(out, " again in %s", s.After)
	}
	if s.Label != "" {
		fmt.Fprintf(out, " label=%s", s.Label)
	}
	fmt.Fprintf(out, "\n  %s\n", s.Message)
	if s.RepeatOffender != nil {
		fmt.Fprintf(out, "  lemon %s\n", markText(*s.RepeatOffender))
	}
}

func markText(m decision.RepeatOffenderMark) string {
	note, ok := nodemark.ParseRepeatOffender(m.Note)
	if !ok && !m.Label {
		return "mark taken away"
	}
	text := note.Machine.ProviderID + " since " + note.Since.Format(time.DateTime)
	for _, r := range note.Repairs {
		text += fmt.Sprintf(", %s at %s", r.Session, r.At.Format(time.DateTime))
	}
	if note.RequiresRelease != "" {
		text += ", kept " + note.RequiresRelease
	}
	return text
}

func statusText(s record.Status) string {
	rem := s.Remediation
	text := record.Remediated(s)
	if rem.Outcome != "" {
		text += "/" + string(rem.Outcome) + "(" + rem.Reason + " by " + rem.Cause + ")"
	}
	if rem.Forgiven != nil {
		text += "(forgiven)"
	}
	if w := rem.Waiting; w != nil {
		text += "(" + w.Reason + " since " + w.Since.Format(time.TimeOnly)
		if w.Until != nil {
			text += " until " + w.Until.Format(time.TimeOnly)
		}
		text += ")"
	}
	for _, a := range rem.Attempts {
		text += fmt.Sprintf("[%d %s %s:%s", a.Ordinal, a.Kind, a.State, a.Reason)
		if a.UID != "" {
			text += " " + a.UID
		}
		if a.ReplacedBootID != "" {
			text += " replaced " + a.ReplacedBootID
		}
		if a.FinishedAt != nil {
			text += " done"
		}
		if !a.SignalSent {
			text += " unsent"
		}
		for _, s := range a.Steps {
			text += " " + s.Name + "=" + s.State
		}
		text += "]"
	}
	return text
}

// TestScripts runs the golden scripts: a node's life as text.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return w.script(d) })
	})
}
