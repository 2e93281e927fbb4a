package decision

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// LemonPolicy says when a machine is a lemon, and what becomes of it. The zero value
// marks none.
type LemonPolicy struct {
	// Repairs within Window make a lemon of their machine; 0 marks none.
	Repairs int
	Window  time.Duration
	// Keep leaves the repair that makes it one, and every later one, to a person.
	Keep bool
}

// DefaultLemonRepairs and DefaultLemonWindow are the defaults of LemonPolicy. Records
// are kept no longer than the window.
const (
	DefaultLemonRepairs = 3
	DefaultLemonWindow  = record.Retention
)

// LemonMark is the mark of a lemon on a Node: label, and annotation.
type LemonMark struct {
	Label bool
	Note  string
	// Former: it is under a former name, and has to be written again.
	Former bool
}

// Message says of a mark what an Event tells.
func (m LemonMark) Message() string {
	note, _ := nodemark.ParseLemon(m.Note)
	return fmt.Sprintf("The machine required %d remediations within %s: %s", len(note.Repairs), note.Window, sessions(note.Repairs))
}

// needed are the repairs that the Node's machine has needed within the window, oldest
// first: one for each session in which something was, or may have been, sent, or in
// which the repair was left to a person for that.
func (d decision) needed() []nodemark.LemonRepair {
	since, at := d.now.Add(-d.policy.Lemon.Window), map[string]time.Time{}
	for _, r := range d.v.Records {
		if fault.Compare(fault.Of(r), d.v.Node.Identity) != fault.SameMachine {
			continue
		}
		for _, x := range unforgiven(r) {
			// A stamp of the future, by a clock that was wrong, counts too.
			if x.At.After(since) && x.At.After(at[x.Session]) {
				at[x.Session] = x.At
			}
		}
	}
	return merged(nil, at)
}

// unforgiven are what of a record counts as a repair.
func unforgiven(r record.Record) (out []nodemark.LemonRepair) {
	rem := r.Status.Remediation
	for _, a := range record.Attempts(r) {
		if didSomething(a) && (rem.Forgiven == nil || a.SubmittedAt.After(*rem.Forgiven)) {
			out = append(out, nodemark.LemonRepair{Session: a.Session, At: a.SubmittedAt})
		}
	}
	if record.KeptLemon(r.Status) && rem.Forgiven == nil {
		out = append(out, nodemark.LemonRepair{Session: r.Status.Session, At: r.CreatedAt})
	}
	return out
}

// didSomething says whether something was sent for an attempt, or may have been. A run
// of a chain that has ended did nothing if none of its steps made an object.
func didSomething(a record.Attempt) bool {
	made := func(s record.RepairStep) bool { return s.UID != "" }
	idle := a.Chain != "" && a.FinishedAt != nil && len(a.Steps) > 0 && !slices.ContainsFunc(a.Steps, made)
	return a.UID != "" && a.SignalSent && !idle
}

// kept says why the Node's next repair is left to a person, if it is.
func (d decision) kept() (message string, kept bool) {
	p := d.policy.Lemon
	if !p.Keep || p.Repairs == 0 {
		return "", false
	}
	before := slices.DeleteFunc(d.needed(), func(r nodemark.LemonRepair) bool { return r.Session == d.v.Node.Session })
	why := "the Node is marked as a repeat offender"
	if len(before)+1 >= p.Repairs {
		why = fmt.Sprintf("this machine requires remediation %d within %s, after %s", len(before)+1, p.Window, sessions(before))
	} else if !d.marked() {
		return "", false
	}
	return why + ". It is not remediated again and stays in quarantine until it is released manually: find the defect of the machine, then release the node, " +
		"or remove the label " + nodemark.LemonLabel + " if the machine has no defect", true
}

// marked says whether the Node is marked as a lemon, and not as another machine.
func (d decision) marked() bool { return d.v.Node.Lemon.Label && !d.ofAnother() }

// ofAnother says whether the Node's mark is that of another machine.
func (d decision) ofAnother() bool {
	note, ok := nodemark.ParseLemon(d.v.Node.Lemon.Note)
	return ok && fault.Compare(note.Machine, d.v.Node.Identity) == fault.AnotherMachine
}

// forgive writes down that a person took the label off, which the annotation without
// it shows: the repairs so far count no more. A fault that was kept stays with a
// person, and its recovery counts; nothing is rebooted for a mark that goes.
func (d decision) forgive() (Step, bool) {
	n := d.v.Node
	if d.policy.Lemon.Repairs == 0 || n.Presence != Present || n.Lemon.Label || n.Lemon.Note == "" || d.ofAnother() {
		return Step{}, false
	}
	e := d.edit()
	for _, r := range d.v.Records {
		counted := unforgiven(r)
		if len(counted) == 0 || fault.Compare(fault.Of(r), n.Identity) != fault.SameMachine {
			continue
		}
		until := d.now.UTC()
		for _, x := range counted {
			until = latest(until, x.At)
		}
		rem := e.of(r).Remediation
		rem.Forgiven = &until
		if record.KeptLemon(r.Status) && record.Open(r) {
			rem.Reason, rem.Message = string(Forgive), "the repeat-offender label was removed. Manual intervention is required until the recovery of the fault is reported, or the node is released"
		}
	}
	return e.step(Forgive, "the repeat-offender label was removed"), len(e.writes) > 0
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// lemonMark is the mark that the Node should bear after a step; nil if it bears it. It
// is put on when the repair begins that makes the machine a lemon, and does not go with
// the window.
func (d decision) lemonMark(s Step) *LemonMark {
	n, p := d.v.Node, d.policy.Lemon
	if n.Presence != Present || p.Repairs == 0 {
		return nil
	}
	needed := map[string]time.Time{}
	for _, r := range d.needed() {
		needed[r.Session] = r.At
	}
	if s.Create != nil {
		needed[s.Create.Attempt.Session] = s.Create.Attempt.SubmittedAt
	}
	want := LemonMark{}
	if d.marked() || len(needed) >= p.Repairs {
		want = LemonMark{Label: true, Note: d.lemonNote(needed)}
	}
	if want == n.Lemon {
		return nil
	}
	return &want
}

// lemonNote is the annotation of a lemon: what it says already, and what is new.
func (d decision) lemonNote(needed map[string]time.Time) string {
	n := d.v.Node
	note, ok := nodemark.ParseLemon(n.Lemon.Note)
	if !ok || d.ofAnother() {
		note = nodemark.Lemon{Since: d.now.UTC().Truncate(time.Second)}
	}
	note.Machine, note.Window = n.Identity, d.policy.Lemon.Window.String()
	note.Machine.BootID = ""
	note.Repairs = merged(note.Repairs, needed)
	mine := func(r record.Record) bool {
		return record.Open(r) && r.Status.Session == n.Session && record.KeptLemon(r.Status)
	}
	if n.Session != "" && slices.ContainsFunc(d.v.Records, mine) {
		note.Kept = n.Session
	} else if note.Kept != n.Session { // the session that was kept is over
		note.Kept = ""
	}
	return note.Text()
}

// merged adds sessions to repairs, oldest first; the API server's times are whole
// seconds.
func merged(repairs []nodemark.LemonRepair, needed map[string]time.Time) []nodemark.LemonRepair {
	out := slices.DeleteFunc(slices.Clone(repairs), func(r nodemark.LemonRepair) bool { return !needed[r.Session].IsZero() })
	for session, at := range needed {
		out = append(out, nodemark.LemonRepair{Session: session, At: at.UTC().Truncate(time.Second)})
	}
	slices.SortFunc(out, func(a, b nodemark.LemonRepair) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Session, b.Session))
	})
	return out[max(0, len(out)-nodemark.MaxLemonRepairs):]
}

func sessions(repairs []nodemark.LemonRepair) string {
	var out []string
	for _, r := range repairs {
		out = append(out, "quarantine session "+r.Session+" at "+r.At.Format(time.RFC3339))
	}
	return strings.Join(out, ", ")
}

// mayReturn says that the Node is deleted, and bore a lemon's repairs: it is looked for
// now and then, so that the machine has its mark again when it is back.
func (d decision) mayReturn() bool {
	if d.policy.Lemon.Repairs == 0 || d.v.Node.Presence != Absent {
		return false
	}
	n := 0
	for _, r := range d.v.Records {
		n += len(unforgiven(r))
	}
	return n >= d.policy.Lemon.Repairs
}
