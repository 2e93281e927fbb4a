package plan_test

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
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// world is a node, its records and its repair objects, in memory.
type world struct {
	t       *testing.T
	now     time.Time
	start   time.Time
	repairs action.Policy
	node    plan.Node
	records map[string]record.Record
	objects map[string]*plan.Object
	// unread makes reading objects fail.
	unread plan.Reason
	pods   []string
	uids   int
}

func newWorld(t *testing.T) *world {
	repairs, err := action.Compile(action.Default(), action.Templates{}, nil)
	if err != nil {
		t.Fatalf("compiling the default actions: %v", err)
	}
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	return &world{t: t, now: start, start: start, repairs: repairs, records: map[string]record.Record{}, objects: map[string]*plan.Object{}}
}

// setActions changes the default actions by a TOML document: of an action that
// exists the keys that are given, any other as a whole.
func (w *world) setActions(doc string) {
	var tables map[string]toml.Primitive
	md, err := toml.Decode(doc, &tables)
	if err != nil {
		w.t.Fatalf("reading the actions: %v", err)
	}
	actions := action.Default()
	for name, table := range tables {
		c := actions[name]
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
func (w *world) view() plan.View {
	v := plan.View{Node: w.node, PodsBack: w.pods}
	v.Records = slices.SortedFunc(maps.Values(w.records), func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	if cur, ok := plan.Current(v.Records); ok {
		switch o, found := w.objects[cur.Attempt.Name]; {
		case w.unread != "":
			v.Object = plan.Object{Unread: w.unread, Health: healthrule.Evaluate(nil, nil, fmt.Errorf("%s", w.unread))}
		case found:
			v.Object = *o
		default:
			v.Object = plan.Object{Presence: plan.Absent}
		}
	}
	v.Boots = fault.BootsOf(v.Records, w.node.Session, w.node.Identity.BootID)
	return v
}

// apply writes what a step asks for, as strictly as a store does.
func (w *world) apply(s plan.Step) {
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

func (w *world) create(c *plan.Creation) {
	if _, taken := w.objects[c.Attempt.Name]; taken {
		w.t.Errorf("%s is created twice", c.Attempt.Name)
	}
	w.uids++
	w.objects[c.Attempt.Name] = &plan.Object{
		Presence: plan.Present, UID: "uid-" + strconv.Itoa(w.uids), CreatedAt: w.now, Session: c.Attempt.Session, Group: c.Attempt.Group,
		Ordinal: c.Attempt.Ordinal, Health: healthrule.Result{State: healthrule.Unknown, Reason: "NoMatchesFulfilled"},
	}
}

// run takes steps until nothing is left to do, or until the process "crashes"
// after a step of the given reason.
func (w *world) run(out *strings.Builder, crash plan.Reason) {
	for range 20 {
		s := plan.Next(w.view(), w.repairs, plan.Policy{RecoveryWithin: plan.DefaultRecoveryWithin}, w.now)
		w.print(out, s)
		w.apply(s)
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

func (w *world) print(out *strings.Builder, s plan.Step) {
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
}

func statusText(s record.Status) string {
	rem := s.Remediation
	text := record.Remediated(s)
	if rem.Outcome != "" {
		text += "/" + string(rem.Outcome) + "(" + rem.Reason + " by " + rem.Cause + ")"
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
		text += "]"
	}
	return text
}

// script runs one command of a golden script.
func (w *world) script(d *datadriven.TestData) string {
	var out strings.Builder
	switch d.Cmd {
	case "node":
		w.setNode(d)
	case "actions":
		w.setActions(d.Input)
	case "fault":
		w.addFault(d)
	case "drained":
		w.each(d, func(r *record.Record) { r.Status.UserPodsEvictionStatus.Status = record.EvictionSucceeded })
	case "clear":
		w.each(d, func(r *record.Record) { at := w.now; r.Status.Faults[0].ClearedTimestamp = &at })
	case "pods":
		w.pods = nil
		for _, a := range d.CmdArgs {
			w.pods = append(w.pods, a.Key)
		}
	case "object":
		w.setObject(d)
	case "reading":
		w.unread = ""
		if d.HasArg("fails") {
			w.unread = plan.ReadError
		}
		if d.HasArg("kind-missing") {
			w.unread = plan.KindMissing
		}
	case "clock":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(w.t, "clock: %v", err)
		}
		w.now = w.now.Add(by)
		return "t=" + w.now.Sub(w.start).String() + "\n"
	case "run":
		crash := ""
		d.MaybeScanArgs(w.t, "crash", &crash)
		w.run(&out, plan.Reason(crash))
		return out.String()
	case "records":
		for _, r := range w.view().Records {
			text, message := record.Remediated(r.Status), ""
			if rem := r.Status.Remediation; rem != nil {
				text, message = statusText(r.Status), rem.Message
			}
			fmt.Fprintf(&out, "%s=%s\n", r.ID, text)
			if message != "" {
				fmt.Fprintf(&out, "  %s\n", message)
			}
		}
		return out.String()
	case "annotation":
		return plan.Annotation(w.view().Records, w.node.Session) + "\n"
	default:
		d.Fatalf(w.t, "unknown command %s", d.Cmd)
	}
	return ""
}

func (w *world) setNode(d *datadriven.TestData) {
	if w.node.Name == "" {
		w.node = plan.Node{Name: "gpu-7", Presence: plan.Present, Marked: true, Identity: record.NodeIdentity{UID: "n1"}}
	}
	d.MaybeScanArgs(w.t, "session", &w.node.Session)
	d.MaybeScanArgs(w.t, "machine", &w.node.Identity.ProviderID)
	d.MaybeScanArgs(w.t, "boot", &w.node.Identity.BootID)
	d.MaybeScanArgs(w.t, "claim", &w.node.Claim)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "schedulable":
			w.node.Marked = false
		case "marked":
			w.node.Marked = true
		case "deleted":
			w.node.Presence = plan.Absent
		case "back":
			w.node.Presence = plan.Present
		case "released":
			w.node.Session, w.node.Marked = "", false
		case "unclaimed":
			w.node.Claim = ""
		}
	}
}

func (w *world) addFault(d *datadriven.TestData) {
	var id, act, boot, session string
	seq := 0
	d.ScanArgs(w.t, "id", &id)
	d.ScanArgs(w.t, "action", &act)
	d.MaybeScanArgs(w.t, "boot", &boot)
	d.MaybeScanArgs(w.t, "seq", &seq)
	if session = w.node.Session; d.HasArg("session") {
		d.ScanArgs(w.t, "session", &session)
	}
	r := record.Record{
		ID: id, CreatedAt: w.now, Append: int64(len(w.records) + 1), Node: w.node.Identity,
		Event: record.Event{
			NodeName: w.node.Name, Agent: "monitor", RecommendedAction: record.Action(act), ProcessingStrategy: record.Process,
			GeneratedTimestamp: w.now, Metadata: map[string]string{},
		},
		Status: record.Status{
			NodeQuarantined: record.Quarantined, Session: session, Faults: []record.Fault{{Key: id}},
			QuarantineVerdict: &record.Verdict{Reason: record.Matched, NodeBootID: w.node.Identity.BootID},
		},
	}
	if d.HasArg("unseen") { // by the connector; fault-quarantine knows it
		r.Node, r.Status.QuarantineVerdict.Machine = record.NodeIdentity{}, new(w.node.Identity)
	}
	if boot != "" {
		r.Event.Metadata[record.MetadataBootID] = boot
	}
	if seq > 0 {
		r.Seq, r.SeqEpoch = uint64(seq), "epoch"
	}
	if d.HasArg("drained") {
		r.Status.UserPodsEvictionStatus.Status = record.AlreadyDrained
	}
	w.records[id] = r
}

func (w *world) each(d *datadriven.TestData, change func(*record.Record)) {
	for _, a := range d.CmdArgs {
		r, ok := w.records[a.Key]
		if !ok {
			d.Fatalf(w.t, "no record %s", a.Key)
		}
		change(&r)
		r.Revision++
		w.records[a.Key] = r
	}
}

// setObject changes the object of the current attempt.
func (w *world) setObject(d *datadriven.TestData) {
	cur, ok := plan.Current(w.view().Records)
	if !ok {
		d.Fatalf(w.t, "no object is under way")
	}
	name := cur.Attempt.Name
	if d.HasArg("foreign") {
		w.objects[name] = &plan.Object{Presence: plan.Present, UID: "foreign", Health: healthrule.Result{State: healthrule.Healthy}}
		return
	}
	o := w.objects[name]
	d.MaybeScanArgs(w.t, "observed", &o.ObservedBoot)
	d.MaybeScanArgs(w.t, "prior", &o.PriorBoot)
	d.MaybeScanArgs(w.t, "uid", &o.UID)
	condition := func(state healthrule.State, text string) {
		o.Health = healthrule.Result{State: state, Reason: "MatchedCondition", Message: text}
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "healthy":
			condition(healthrule.Healthy, "condition status: True, message: node is back")
		case "unhealthy":
			condition(healthrule.Unhealthy, "condition status: False, message: node did not come back")
		case "refused":
			condition(healthrule.Unhealthy, "condition status: False, message: plugin says no")
			o.Unsent = true
		case "session-over":
			condition(healthrule.Unhealthy, "condition status: False, message: session is over")
			o.Unsent, o.SessionOver = true, true
		case "not-needed":
			condition(healthrule.Healthy, "condition status: True, message: rebooted by somebody else")
			o.Unsent = true
		case "deleted":
			delete(w.objects, name)
		}
	}
}

// TestScripts runs the golden scripts: a node's life as text.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return w.script(d) })
	})
}
