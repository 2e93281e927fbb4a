package decision_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func parseRecord(d *datadriven.TestData) record.Record {
	get := func(key, fallback string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return strings.Join(a.Vals, "+")
			}
		}
		return fallback
	}
	seq, _ := strconv.ParseUint(get("seq", "0"), 10, 64)
	e := record.Event{
		ID: d.CmdArgs[0].Key, Agent: get("agent", "syslog-health-monitor"), ComponentClass: "GPU", CheckName: "SysLogsXIDError",
		NodeName: "n1", IsFatal: d.Cmd == "fault", IsHealthy: d.Cmd == "recovery",
		RecommendedAction: record.Action(get("action", "NONE")), ProcessingStrategy: record.Strategy(get("strategy", "PROCESS")),
		Metadata: map[string]string{record.MetadataBootID: get("boot", ""), record.MetadataSeqRuns: get("run", "r1")},
	}
	if get("fatal", "") == "no" {
		e.IsFatal = false
	}
	if o := get("override", ""); o != "" {
		e.QuarantineOverrides = &record.Override{Skip: o == "skip", Force: o == "force"}
	}
	for _, x := range list(get("on", "")) {
		kind, value, _ := strings.Cut(x, "/")
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: kind, EntityValue: value})
	}
	e.ErrorCode = list(get("code", ""))
	r := record.Record{ID: e.ID, Event: e, Seq: seq, SeqEpoch: get("epoch", "e1")}
	if machine := get("machine", "p1"); machine != "unseen" {
		r.Node = record.NodeIdentity{UID: "u-" + machine, ProviderID: machine}
	}
	return r
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "+")
}

// show prints the changed records and the node's session.
func (w *world) show(j decision.Evaluation) string {
	var b strings.Builder
	for _, r := range j.Changed {
		fmt.Fprintf(&b, "%s: %s", r.ID, r.Reason())
		if q := r.Status.NodeQuarantined; q != "" {
			fmt.Fprintf(&b, " %s", q)
		}
		if s := r.Status.Session; s != "" {
			fmt.Fprintf(&b, " session=%s", s)
		}
		for _, f := range r.Status.Faults {
			if f.ClearedTimestamp != nil {
				parts := strings.Split(f.Key, "|")
				fmt.Fprintf(&b, " cleared(%s %s)=%s", parts[4], parts[6], f.ClearedBy)
			}
		}
		b.WriteString("\n")
	}
	if j.Held != nil {
		fmt.Fprintf(&b, "held since: %s\n", j.Held.ID)
	}
	if j.Waiting != "" {
		fmt.Fprintf(&b, "waiting: %s\n", j.Waiting)
	}
	session := decision.Session(j.Open)
	if session == "" {
		session = "none"
	}
	fmt.Fprintf(&b, "session: %s, open: %d\n", session, len(j.Open))
	if len(j.Unknown) > 0 {
		fmt.Fprintf(&b, "unknown: %s; node: session %s, unschedulable %t\n", strings.Join(j.Unknown, " "), w.node.Session, w.node.Unschedulable)
	}
	return b.String()
}

func (w *world) command(d *datadriven.TestData) string {
	switch d.Cmd {
	case "fault", "recovery":
		w.append(parseRecord(d))
		return ""
	case "clearing": // a person's, of one record
		var of string
		d.ScanArgs(w.t, "of", &of)
		d.Cmd = "recovery"
		r := parseRecord(d)
		r.ID = fault.ClearingID(of)
		r.Event.ID, r.Event.Metadata[fault.MetadataClears] = r.ID, of
		w.append(r)
	case "judge":
		return w.show(w.evaluate())
	case "kept": // fault-remediation leaves a fault of a repeat offender to a person
		r := w.records[d.CmdArgs[0].Key]
		rem := record.Remediation{}
		if r.Status.Remediation != nil {
			rem = *r.Status.Remediation
		}
		rem.Outcome, rem.Reason = record.OutcomeNeedsHuman, record.RepeatOffender
		if d.HasArg("forgiven") {
			rem.Reason = "Forgiven"
		}
		r.Status.Remediation = &rem
		w.records[r.ID] = r
	case "newer": // only a newer version may change it, or a state that one gave; or this is that version
		r := w.records[d.CmdArgs[0].Key]
		r.MinVersion = record.Version + 1
		if d.HasArg("now") {
			r.MinVersion = 0
		}
		if d.HasArg("verdict") {
			v := *r.Status.QuarantineVerdict
			v.Reason = "NewerReason"
			r.Status.QuarantineVerdict, r.MinVersion = &v, 0
		}
		w.records[r.ID] = r
	case "kept-node": // the Node's mark shows it, or no longer does
		w.node.RequiresRelease = len(d.CmdArgs) == 0
	case "reboot":
		w.node.Identity.BootID = d.CmdArgs[0].Key
	case "repaired": // the repair of a record replaced a boot
		r := w.records[d.CmdArgs[0].Key]
		var boot string
		d.ScanArgs(w.t, "boot", &boot)
		r.Status.Remediation = &record.Remediation{Outcome: record.OutcomeSucceeded, Attempts: []record.Attempt{{ReplacedBootID: boot}}}
		w.records[r.ID] = r
	case "attempt": // of a record: a chain or a reboot, and its state
		w.attempt(d)
	case "machine":
		w.node = &decision.Node{Identity: record.NodeIdentity{UID: "u-" + d.CmdArgs[0].Key, ProviderID: d.CmdArgs[0].Key, BootID: "bx"}, Created: w.now}
	case "delete-node":
		w.node = nil
	case "store": // backup, restore or empty
		w.store(d.CmdArgs[0].Key)
	case "unstamped": // nobody has written that the Node was marked; the drainer may have begun
		r := w.records[d.CmdArgs[0].Key]
		r.Status.QuarantineFinishTimestamp = nil
		if d.HasArg("draining") {
			r.Status.UserPodsEvictionStatus.Status = record.EvictionInProgress
		}
		w.records[r.ID] = r
	case "check": // what the node's own condition reports
		w.node.Checks = map[string]decision.Check{"SysLogsXIDError": {Faulty: d.CmdArgs[0].Key == "faulty", Since: w.now}}
	case "node-restored": // to what it was before all
		w.node.Session, w.node.Active, w.node.Unschedulable = "", nil, d.HasArg("cordoned")
	case "let-go": // a person's release is noted on the Node
		w.node.LetGo = true
	case "release":
		w.node.Released, w.node.Unschedulable = true, false
	case "uncordon": // as the API server notes it: by=USER, and what else the Node reports
		w.uncordon(d)
	case "dry-run":
		w.dryRun = d.CmdArgs[0].Key == "on"
	case "clock":
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(step)
	case "opt-out":
		w.node.OptedOut = len(d.CmdArgs) == 0
	case "budget": // full or free
		w.holdReason = ""
		if d.CmdArgs[0].Key == "full" {
			w.holdReason = "no room"
		}
	case "why": // the content of the verdict
		v := w.records[d.CmdArgs[0].Key].Status.QuarantineVerdict
		return fmt.Sprintf("%s by %q: cordon %t, %q\n", v.Reason, v.RuleSets, v.Effects.Cordon, v.Detail)
	case "open":
		return strings.Join(slices.Sorted(maps.Keys(w.openKeys())), "\n") + "\n"
	default:
		w.t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

// uncordon lifts the cordon of the node's session, which releases it or not.
func (w *world) uncordon(d *datadriven.TestData) {
	var by string
	d.MaybeScanArgs(w.t, "by", &by)
	n := &corev1.Node{}
	for key, value := range map[string]string{
		nodemark.SessionAnnotation: w.node.Session, nodemark.QuarantineHealthEventIsCordoned: nodemark.True, nodemark.LiftedByAnnotation: by,
	} {
		nodemark.Annotate(n, key, value)
	}
	if d.HasArg("anyone") {
		nodemark.Annotate(n, nodemark.AnyoneReleasesAnnotation, nodemark.True)
	}
	if d.HasArg("repairing") {
		nodemark.SetState(n, nodemark.Remediating)
	}
	w.node.Released, w.node.Unschedulable = nodemark.Read(n).Released != nodemark.NotReleased, false
}

// attempt is what fault-remediation records: attempt RECORD kind=RepairRun state=Healthy.
func (w *world) attempt(d *datadriven.TestData) {
	r := w.records[d.CmdArgs[0].Key]
	kind, state := "RebootNode", "Unknown"
	d.MaybeScanArgs(w.t, "kind", &kind)
	d.MaybeScanArgs(w.t, "state", &state)
	a := record.Attempt{Kind: kind, Name: "repair", UID: "uid", Session: r.Status.Session, State: state, SubmittedAt: w.now, SignalSent: !d.HasArg("unsent")}
	if kind == "RepairRun" {
		a.Chain = "c"
	}
	if d.HasArg("reserved") {
		a.UID = ""
	}
	if state != "Unknown" {
		a.FinishedAt = new(w.now)
	}
	rem := record.Remediation{}
	if r.Status.Remediation != nil {
		rem = *r.Status.Remediation
	}
	if d.HasArg("succeeded") {
		rem.Outcome = record.OutcomeSucceeded
	}
	rem.Attempts = append(slices.Clone(rem.Attempts), a)
	if d.HasArg("again") { // the same one, later
		rem.Attempts = slices.Delete(rem.Attempts, len(rem.Attempts)-2, len(rem.Attempts)-1)
	}
	r.Status.Remediation = &rem
	w.records[r.ID] = r
}

// lists reports whether the Node lists a fault as active.
func (w *world) lists(id string) bool {
	return slices.ContainsFunc(w.node.Active, func(r record.Record) bool { return r.ID == id })
}

func (w *world) store(what string) {
	switch what {
	case "backup":
		w.backup = maps.Clone(w.records)
	case "restore":
		w.records = maps.Clone(w.backup)
	case "empty":
		w.records = map[string]record.Record{}
	}
}

func (w *world) openKeys() map[string]bool {
	out := map[string]bool{}
	for _, r := range w.list(record.OpenOfNode("n1").Matches) {
		for _, f := range r.Status.Faults {
			if f.ClearedTimestamp == nil {
				out[f.Key] = true
			}
		}
	}
	return out
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.command(d)
		})
	})
}

// TestScriptsStoppedBetweenParts plays every script again for every part of a
// write in it, with the evaluator stopped right after that part: it comes to the
// same end.
func TestScriptsStoppedBetweenParts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		play := func(stopAt int) *world {
			w := newWorld(t)
			w.stopAt = stopAt
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				w.t = t
				w.command(d)
				return d.Expected
			})
			return w
		}
		reported := play(1 << 30) // in parts, and never stopped
		if got, want := reported.end(), play(0).end(); got != want {
			t.Errorf("in parts:\n%s\nin one:\n%s", got, want)
		}
		for at := 1; at <= reported.parts; at++ {
			if got, want := play(at).end(), reported.end(); got != want {
				t.Fatalf("stopped after part %d of %d:\n%s\nnot stopped:\n%s", at, reported.parts, got, want)
			}
		}
	})
}

// TestBatches: parts of so many records, a recovery with the fault before it.
func TestBatches(t *testing.T) {
	for changed, want := range map[string]string{
		"": "", "f": "f", "ff": "ff", "fff": "ff f", "ffr": "ffr", "ffrf": "ffr f", "ffff": "ff ff", "frrrf": "frrr f",
	} {
		var j decision.Evaluation
		for _, kind := range changed {
			reason := map[rune]record.Reason{'f': record.Matched, 'r': record.Cleared}[kind]
			j.Changed = append(j.Changed, record.Record{ID: string(kind), Status: record.Status{QuarantineVerdict: &record.Verdict{Reason: reason}}})
		}
		var got []string
		for _, part := range j.Batches(2) {
			ids := ""
			for _, r := range part {
				ids += r.ID
			}
			got = append(got, ids)
		}
		if strings.Join(got, " ") != want || want == "" && len(got) > 0 {
			t.Errorf("%s in parts of two: %q, want %q", changed, got, want)
		}
	}
}

// end is what became of every record.
func (w *world) end() string {
	var b strings.Builder
	for _, r := range w.list(func(record.Record) bool { return true }) {
		fmt.Fprintf(&b, "%s: %s %s session=%s", r.ID, r.Reason(), r.Status.NodeQuarantined, r.Status.Session)
		for _, f := range r.Status.Faults {
			fmt.Fprintf(&b, " %s=%s", f.Key, f.ClearedBy)
		}
		b.WriteString("\n")
	}
	return b.String()
}
