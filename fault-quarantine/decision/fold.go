package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// fold is the state of one evaluation.
type fold struct {
	View
	policy  Policy
	now     time.Time
	session string
	boots   fault.Boots
	// recoveries are all known recoveries of the node, evaluated or not.
	recoveries  []record.Record
	open        []record.Record
	closed      []record.Record // open records that ended here
	evaluated   []record.Record
	cleared     map[string]int // recovery id -> entries it cleared or superseded
	opens       *record.Record
	held        *record.Record
	waiting     string
	detail      string
	unconfirmed map[string]bool // open records that the Node does not confirm
	newer       bool            // a fault waits that only a newer version can evaluate
	sealed      bool            // the session ends, and only a newer version can end it
}

func newFold(v View, p Policy, now time.Time) *fold {
	f := &fold{View: v, policy: p, now: now, session: Session(v.Open), cleared: map[string]int{}, unconfirmed: map[string]bool{}}
	f.Past, f.Named = ofNode(v.Name, v.Past), ofNode(v.Name, v.Named)
	f.excludeNewer()
	v = f.View
	current := ""
	if v.Node != nil {
		current = v.Node.Identity.BootID
	}
	known := slices.Concat(v.Past, v.Open, v.Pending)
	f.boots = fault.BootsOf(known, f.session, current)
	for _, r := range slices.Concat(known, v.Named) {
		if r.Event.IsHealthy {
			f.recoveries = append(f.recoveries, r)
		}
	}
	for _, r := range v.Open {
		f.open = append(f.open, clone(r))
	}
	return f
}

// ofNode leaves out records of other nodes: an id that the node displays may have been
// taken by another node, in a store that had lost it.
func ofNode(name string, records []record.Record) []record.Record {
	foreign := func(r record.Record) bool { return r.Event.NodeName != name }
	if !slices.ContainsFunc(records, foreign) {
		return records
	}
	return slices.DeleteFunc(slices.Clone(records), foreign)
}

// endForeignSession closes the open faults of a machine that is gone or that a
// person released.
func (f *fold) endForeignSession() {
	if len(f.open) == 0 {
		return
	}
	switch {
	case f.Node == nil:
		if f.deletedPermanently() {
			f.closeAll(record.ClearedNodeGone)
		} else {
			f.waiting = WaitNodeMissing
		}
	case fault.Compare(fault.Of(f.open[0]), f.Node.Identity) == fault.AnotherMachine:
		f.closeAll(record.ClearedNodeGone)
	case f.Node.Released && f.Node.Session == f.session:
		f.closeAll(record.ClearedManual)
	}
}

// deletedPermanently reports whether a missing Node will not come back: it was
// terminated on purpose, or has been away for too long.
func (f *fold) deletedPermanently() bool {
	newest := time.Time{}
	for _, r := range f.open {
		if v := r.Status.QuarantineVerdict; v != nil && v.At.After(newest) {
			newest = v.At
		}
		if rem := r.Status.Remediation; rem != nil && rem.Outcome == record.OutcomeSucceeded {
			for _, a := range rem.Attempts {
				if a.Kind == "TerminateNode" && a.State == "Healthy" {
					return true
				}
			}
		}
	}
	return f.now.Sub(newest) > deletedNodeTimeout
}

func (f *fold) closeAll(by string) {
	if theirs := f.newerOpen(); theirs != nil {
		f.sealed = true
		f.waitForNewer(*theirs)
		return
	}
	for _, r := range f.open {
		f.cancel(r, by)
	}
	f.open, f.session = nil, ""
}

func (f *fold) cancel(r record.Record, by string) {
	for i := range r.Status.Faults {
		f.clear(&r.Status.Faults[i], by)
	}
	r.Status.NodeQuarantined = record.QuarantineCanceled
	f.closed = append(f.closed, r)
}

func (f *fold) clear(entry *record.Fault, by string) bool {
	if entry.ClearedTimestamp != nil {
		return false
	}
	at := f.now
	entry.ClearedTimestamp, entry.ClearedBy = &at, by
	return true
}

// ofThisMachine compares a pending record with the Node. A record whose
// connector never saw the Node belongs to it if the Node is the older one.
func (f *fold) ofThisMachine(r record.Record) fault.Sameness {
	if f.Node == nil {
		return fault.Undecidable
	}
	if machine := fault.Of(r); fault.Machine(machine) != "" {
		return fault.Compare(machine, f.Node.Identity)
	}
	if f.Node.Created.Before(r.CreatedAt) {
		return fault.SameMachine
	}
	return fault.Undecidable
}

func (f *fold) fault(r record.Record) {
	r = clone(r)
	entries := fault.EntriesOf(r)
	if len(r.Status.Faults) == 0 {
		for _, e := range entries {
			r.Status.Faults = append(r.Status.Faults, record.Fault{Key: e.Key})
		}
	}
	f.supersede(&r, entries)
	if r.Status.AllCleared() {
		f.evaluated = append(f.evaluated, f.verdict(r, record.Superseded))
		return
	}
	if f.Node == nil {
		f.waiting = WaitNodeMissing
		return
	}
	if f.letGo(r) {
		f.end(r, record.ClearedManual)
		return
	}
	switch f.ofThisMachine(r) {
	case fault.Undecidable:
		f.waiting = WaitMachineUnsure
	case fault.AnotherMachine:
		f.end(r, record.ClearedNodeGone)
	case fault.SameMachine:
		f.rule(r)
	}
}

// letGo reports whether a fault that is not evaluated is one that a person has ended,
// or ends now: the store had forgotten it, and receives it again.
func (f *fold) letGo(r record.Record) bool {
	n := f.Node
	named := func(id string) bool { return record.SameID(f.Name, id, r.ID) }
	listed := func(a record.Record) bool { return named(a.ID) }
	return slices.ContainsFunc(n.Ended, named) || n.Released && (slices.ContainsFunc(n.Unconfirmed, named) || slices.ContainsFunc(n.Active, listed))
}

// end closes a fault that is not evaluated yet: it is over already.
func (f *fold) end(r record.Record, by string) {
	for i := range r.Status.Faults {
		f.clear(&r.Status.Faults[i], by)
	}
	f.evaluated = append(f.evaluated, f.verdict(r, record.Superseded))
}

// supersede clears the entries that a later recovery already named.
func (f *fold) supersede(r *record.Record, entries []fault.Entry) {
	for i, e := range entries {
		for _, rec := range f.recoveries {
			if fault.Before(*r, rec) && fault.Clears(rec.Event, r.Event, e) && f.clear(&r.Status.Faults[i], rec.ID) {
				f.cleared[rec.ID]++
			}
		}
	}
}

// recovery clears what it names among the open records.
func (f *fold) recovery(r record.Record) {
	if wait, why := f.blockedBy(); wait != "" && f.clears(r) {
		f.waiting, f.detail = wait, why
		return
	}
	if f.beyond(r) {
		return
	}
	r = clone(r)
	cleared, session := 0, f.session
	var still []record.Record
	for _, o := range f.open {
		cleared += f.clearFrom(&o, r)
		if o.Status.AllCleared() {
			f.closed = append(f.closed, o)
		} else {
			still = append(still, o)
		}
	}
	f.open = still
	reason := record.NoOpenFault
	if cleared > 0 || f.cleared[r.ID] > 0 {
		reason = record.Cleared
	}
	if cleared > 0 {
		r.Status.Session = session
		r.Status.NodeQuarantined = record.AlreadyQuarantined
		if len(f.open) == 0 {
			r.Status.NodeQuarantined = record.UnQuarantined
			f.session = ""
		}
	}
	f.evaluated = append(f.evaluated, f.verdict(r, reason))
}

// blockedBy returns what keeps recoveries waiting, and why; empty when nothing does.
func (f *fold) blockedBy() (wait, why string) {
	for _, r := range f.open {
		if record.RequiresRelease(r.Status) {
			return WaitRepeatOffender, r.Status.Remediation.Message
		}
	}
	if f.Node != nil && f.Node.RequiresRelease {
		return WaitRepeatOffender, "recorded in the annotation of the Node"
	}
	if why := f.repairing(); why != "" {
		return WaitRepair, why
	}
	return "", ""
}

// repairing returns which repair of the session keeps recoveries waiting: its newest one,
// if one of them was a chain and the newest has not succeeded. Nothing was done by one
// whose object is not known to exist, or whose signal was not sent: a fault that ends
// before its repair begins needs none.
func (f *fold) repairing() string {
	var newest *record.Attempt
	chained := false
	for _, r := range slices.Concat(f.Open, f.Past, f.Named) {
		if r.Status.Remediation == nil {
			continue
		}
		for _, a := range r.Status.Remediation.Attempts {
			if a.Session != f.session || f.session == "" || a.UID == "" || !a.SignalSent {
				continue
			}
			chained = chained || a.Chain != ""
			if newest == nil || a.SubmittedAt.After(newest.SubmittedAt) {
				newest = &a
			}
		}
	}
	if !chained || newest.FinishedAt != nil && newest.State == "Healthy" {
		return ""
	}
	return fmt.Sprintf("%s %s: %s %s", newest.Kind, newest.Name, newest.State, newest.Reason)
}

// clears reports whether a recovery would clear an open fault, and is a monitor's: that of
// a person counts at once.
func (f *fold) clears(r record.Record) bool {
	return !clearedManually(r) && slices.ContainsFunc(f.open, func(o record.Record) bool {
		o = clone(o)
		return f.clearFrom(&o, r) > 0
	})
}

func (f *fold) clearFrom(o *record.Record, recovery record.Record) int {
	n := 0
	if !fault.Before(*o, recovery) {
		return 0
	}
	if f.Condensed[o.ID] {
		for i := range o.Status.Faults {
			by := strings.Split(o.Status.Faults[i].Key, idsApart)
			if slices.Contains(by, recovery.ID) && f.clear(&o.Status.Faults[i], recovery.ID) {
				n++
			}
		}
		return n
	}
	for i, e := range fault.EntriesOf(*o) {
		if i < len(o.Status.Faults) && fault.Clears(recovery.Event, o.Event, e) && f.clear(&o.Status.Faults[i], recovery.ID) {
			n++
		}
	}
	return n
}

// evaluation collects what changed, each finished record with its expiry.
func (f *fold) evaluation() Evaluation {
	before := map[string]record.Record{}
	for _, r := range slices.Concat(f.Open, f.Pending) {
		before[r.ID] = r
	}
	j := Evaluation{Open: slices.Clone(f.open), Condensed: f.Condensed, Opens: f.opens, Held: f.held, Waiting: f.waiting, Detail: f.detail}
	changes := writing{before: before, session: Session(f.Open)}
	for _, r := range slices.Concat(f.open, f.closed, f.evaluated) {
		if record.Finished(r) && r.ExpireAt == nil {
			at := f.now.Add(f.policy.Retention)
			r.ExpireAt = &at
		}
		if !equal(before[r.ID], r) {
			changes.add(r)
		}
	}
	j.Changed = changes.ordered()
	f.prove(&j)
	return j
}

func equal(a, b record.Record) bool {
	return a.Status.NodeQuarantined == b.Status.NodeQuarantined && a.Reason() == b.Reason() &&
		a.Status.Session == b.Status.Session && slices.EqualFunc(a.Status.Faults, b.Status.Faults, func(x, y record.Fault) bool {
		return x.Key == y.Key && x.ClearedBy == y.ClearedBy
	}) && (a.ExpireAt == nil) == (b.ExpireAt == nil)
}

// clone copies what an evaluation may change.
func clone(r record.Record) record.Record {
	r.Status.Faults = slices.Clone(r.Status.Faults)
	return r
}
