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

// RepeatOffenderPolicy decides when a machine is a repeat offender, and what becomes of it.
// The zero value marks none.
type RepeatOffenderPolicy struct {
	// Repairs within Window make their machine a repeat offender; 0 marks none.
	Repairs int
	Window  time.Duration
	// Keep leaves the repair that makes it one, and every later one, to a person.
	Keep bool
}

// DefaultRepeatOffenderRepairs and DefaultRepeatOffenderWindow are the defaults of
// RepeatOffenderPolicy. Records are kept no longer than the window.
const (
	DefaultRepeatOffenderRepairs = 3
	DefaultRepeatOffenderWindow  = record.Retention
)

// RepeatOffenderMark is the mark of a repeat offender on a Node: label, and annotation.
type RepeatOffenderMark struct {
	Label bool
	Note  string
	// Former: it is under a former name, and has to be written again.
	Former bool
}

// Message is the text of an Event about a mark.
func (r RepeatOffenderMark) Message() string {
	note, _ := nodemark.ParseRepeatOffender(r.Note)
	return fmt.Sprintf("The machine required %d remediations within %s: %s", len(note.Repairs), note.Window, sessions(note.Repairs))
}

// needed are the repairs that the Node's machine has needed within the window, oldest
// first: one for each session in which something was, or may have been, sent, or in
// which the repair was left to a person for that.
func (d decision) needed() []nodemark.CountedRepair {
	since, at := d.now.Add(-d.policy.RepeatOffender.Window), map[string]time.Time{}
	for _, r := range d.v.Records {
		if fault.Compare(fault.Of(r), d.v.Node.Identity) != fault.SameMachine {
			continue
		}
		for _, x := range unforgiven(r) {
			// A time in the future, by a clock that was wrong, counts too.
			if x.At.After(since) && x.At.After(at[x.Session]) {
				at[x.Session] = x.At
			}
		}
	}
	return merged(nil, at)
}

// unforgiven are what of a record counts as a repair.
func unforgiven(r record.Record) (out []nodemark.CountedRepair) {
	rem := r.Status.Remediation
	for _, a := range record.Attempts(r) {
		if didSomething(a) && (rem.Forgiven == nil || a.SubmittedAt.After(*rem.Forgiven)) {
			out = append(out, nodemark.CountedRepair{Session: a.Session, At: a.SubmittedAt})
		}
	}
	if record.RequiresRelease(r.Status) && rem.Forgiven == nil {
		out = append(out, nodemark.CountedRepair{Session: r.Status.Session, At: r.CreatedAt})
	}
	return out
}

// didSomething reports whether something was sent for an attempt, or may have been. A run
// of a chain that has ended did nothing if none of its steps made an object.
func didSomething(a record.Attempt) bool {
	made := func(s record.RepairStep) bool { return s.UID != "" }
	idle := a.Chain != "" && a.FinishedAt != nil && len(a.Steps) > 0 && !slices.ContainsFunc(a.Steps, made)
	return a.UID != "" && a.SignalSent && !idle
}

// requiresRelease returns why the Node's next repair is left to a person, if it is.
func (d decision) requiresRelease() (message string, kept bool) {
	p := d.policy.RepeatOffender
	if !p.Keep || p.Repairs == 0 {
		return "", false
	}
	before := slices.DeleteFunc(d.needed(), func(r nodemark.CountedRepair) bool { return r.Session == d.v.Node.Session })
	why := "the Node is marked as a repeat offender"
	if len(before)+1 >= p.Repairs {
		why = fmt.Sprintf("this machine requires remediation %d within %s, after %s", len(before)+1, p.Window, sessions(before))
	} else if !d.marked() {
		return "", false
	}
	return why + ". It is not remediated again and stays in quarantine until it is released manually: find the defect of the machine, then release the node, " +
		"or remove the label " + nodemark.RepeatOffenderLabel + " if the machine has no defect", true
}

// marked reports whether the Node is marked as a repeat offender, and not as another machine.
func (d decision) marked() bool { return d.v.Node.RepeatOffender.Label && !d.ofAnother() }

// ofAnother reports whether the Node's mark is that of another machine.
func (d decision) ofAnother() bool {
	note, ok := nodemark.ParseRepeatOffender(d.v.Node.RepeatOffender.Note)
	return ok && fault.Compare(note.Machine, d.v.Node.Identity) == fault.AnotherMachine
}

// forgive writes down that a person took the label off, which the annotation without
// it shows: the repairs so far count no more. A fault that was kept stays with a
// person, and its recovery counts; nothing is rebooted for a mark that goes.
func (d decision) forgive() (Step, bool) {
	n := d.v.Node
	if d.policy.RepeatOffender.Repairs == 0 || n.Presence != Present || n.RepeatOffender.Label || n.RepeatOffender.Note == "" || d.ofAnother() {
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
		if record.RequiresRelease(r.Status) && record.Open(r) {
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

// repeatOffenderMark is the mark that the Node should bear after a step; nil if it bears it. It
// is put on when the repair begins that makes the machine a repeat offender, and does not go with
// the window.
func (d decision) repeatOffenderMark(s Step) *RepeatOffenderMark {
	n, p := d.v.Node, d.policy.RepeatOffender
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
	want := RepeatOffenderMark{}
	if d.marked() || len(needed) >= p.Repairs {
		want = RepeatOffenderMark{Label: true, Note: d.repeatOffenderNote(needed)}
	}
	if want == n.RepeatOffender {
		return nil
	}
	return &want
}

// repeatOffenderNote is the annotation of a repeat offender: what it has already, and what
// is new.
func (d decision) repeatOffenderNote(needed map[string]time.Time) string {
	n := d.v.Node
	note, ok := nodemark.ParseRepeatOffender(n.RepeatOffender.Note)
	if !ok || d.ofAnother() {
		note = nodemark.RepeatOffender{Since: d.now.UTC().Truncate(time.Second)}
	}
	note.Machine, note.Window = n.Identity, d.policy.RepeatOffender.Window.String()
	note.Machine.BootID = ""
	note.Repairs = merged(note.Repairs, needed)
	mine := func(r record.Record) bool {
		return record.Open(r) && r.Status.Session == n.Session && record.RequiresRelease(r.Status)
	}
	if n.Session != "" && slices.ContainsFunc(d.v.Records, mine) {
		note.RequiresRelease = n.Session
	} else if note.RequiresRelease != n.Session { // the session that was kept is over
		note.RequiresRelease = ""
	}
	return note.Text()
}

// merged adds sessions to repairs, oldest first; the API server's times are whole
// seconds.
func merged(repairs []nodemark.CountedRepair, needed map[string]time.Time) []nodemark.CountedRepair {
	out := slices.DeleteFunc(slices.Clone(repairs), func(r nodemark.CountedRepair) bool { return !needed[r.Session].IsZero() })
	for session, at := range needed {
		out = append(out, nodemark.CountedRepair{Session: session, At: at.UTC().Truncate(time.Second)})
	}
	slices.SortFunc(out, func(a, b nodemark.CountedRepair) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Session, b.Session))
	})
	return out[max(0, len(out)-nodemark.MaxCountedRepairs):]
}

func sessions(repairs []nodemark.CountedRepair) string {
	var out []string
	for _, r := range repairs {
		out = append(out, "quarantine session "+r.Session+" at "+r.At.Format(time.RFC3339))
	}
	return strings.Join(out, ", ")
}

// mayReturn reports whether the Node is deleted, and bore a repeat offender's repairs: it is
// looked for now and then, so that the machine has its mark again when it is back.
func (d decision) mayReturn() bool {
	if d.policy.RepeatOffender.Repairs == 0 || d.v.Node.Presence != Absent {
		return false
	}
	n := 0
	for _, r := range d.v.Records {
		n += len(unforgiven(r))
	}
	return n >= d.policy.RepeatOffender.Repairs
}
