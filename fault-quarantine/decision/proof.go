package decision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// A store that was emptied, restored to an older state, or exchanged knows less
// than the Nodes do. Its silence proves nothing: what the Node reports and the
// store does not have is unknown until a record, the node's own checks or a
// person resolves it.

// checkMarks looks at open faults for which the Node was marked once and bears no
// marks now: the store may not know of their end. What the Node itself proves is
// taken over; the rest is unknown.
func (f *fold) checkMarks() {
	if f.Node == nil || len(f.open) == 0 {
		return
	}
	bare := f.Node.Session == "" && f.bare()
	var still []record.Record
	for _, r := range f.open {
		again := bare && !f.recreated(r)
		listed := slices.ContainsFunc(f.Node.Unconfirmed, func(id string) bool { return record.SameID(f.Name, id, r.ID) })
		if record.NeedsNewer(r) != "" || marked(r) == nil || !again && !listed {
			still = append(still, r)
			continue
		}
		switch f.reportOf(r) {
		case over:
			f.cancel(r, record.ClearedNodeReleased)
		case releasedManually:
			f.cancel(r, record.ClearedManual)
		case silent:
			f.unconfirmed[r.ID] = true
			still = append(still, r)
		case stands:
			still = append(still, r)
		}
	}
	if f.open = still; len(still) == 0 {
		f.session = ""
	}
}

// marked is from when on the Node bore the marks of a fault, at the earliest; nil if no
// record shows that it ever did. Where a store forgot that status update, the drainer's
// shows it: the drain begins with a Node that bears the session.
func marked(r record.Record) *time.Time {
	if at := r.Status.QuarantineFinishTimestamp; at != nil {
		return at
	}
	if r.Status.UserPodsEvictionStatus.Status != record.EvictionUnset && r.Status.QuarantineVerdict != nil {
		return &r.Status.QuarantineVerdict.At
	}
	return nil
}

// nodeReport is what a Node reports about a fault for which it bears no marks any more.
type nodeReport int

const (
	silent nodeReport = iota
	stands
	over
	releasedManually
)

func (f *fold) reportOf(r record.Record) nodeReport {
	check, reported := f.Node.Checks[r.Event.CheckName]
	switch {
	case f.Node.LetGo:
		return releasedManually
	case !reported || r.Event.BootID() == "": // no check of the node's own
		return silent
	case check.Faulty:
		return stands
	case check.Since.After(*marked(r)):
		return over
	}
	return silent
}

// bare reports whether the Node lacks all that keeps pods away and that the open
// faults ask for.
func (f *fold) bare() bool {
	for _, r := range f.open {
		asks := r.Status.QuarantineVerdict.Effects
		if asks.Cordon && f.Node.Unschedulable {
			return false
		}
		for _, t := range asks.Taints {
			if t.Effect != string(corev1.TaintEffectPreferNoSchedule) && slices.Contains(f.Node.Taints, t) {
				return false
			}
		}
	}
	return true
}

// recreated reports whether the Node object came to be after it was marked: it is
// marked again then.
func (f *fold) recreated(r record.Record) bool {
	at := marked(r)
	return fault.Of(r).UID != f.Node.Identity.UID && at != nil && f.Node.Created.After(*at)
}

// prove looks for the end of every fault that the Node names. Without a proof a
// release has to wait.
func (f *fold) prove(j *Evaluation) {
	if f.sealed { // the Node stays as it is
		j.Leave = true
		for _, r := range f.open {
			j.Unknown = append(j.Unknown, r.ID)
		}
		return
	}
	if f.Node == nil || f.Node.Released {
		return
	}
	all := slices.Concat(f.Named, f.Pending, f.open, f.closed, f.evaluated)
	if !f.sessionRecorded(all) {
		j.Unknown = append(j.Unknown, f.Node.Session)
	}
	for _, a := range f.Node.Active {
		if !f.proven(a, all) {
			j.Unknown = append(j.Unknown, a.ID)
		}
	}
	for _, r := range f.open {
		if f.unconfirmed[r.ID] && !slices.Contains(j.Unknown, r.ID) {
			j.Unknown = append(j.Unknown, r.ID)
		}
	}
	if len(j.Unknown) > 0 && j.Waiting == "" {
		j.Waiting = WaitUnknown
	}
	j.Leave = f.Node.Session == "" && len(f.open) > 0 && len(f.unconfirmed) == len(f.open)
}

// sessionRecorded reports whether a record, or the Node's list of faults, names the Node's session.
func (f *fold) sessionRecorded(all []record.Record) bool {
	s := f.Node.Session
	return s == "" ||
		slices.ContainsFunc(all, func(r record.Record) bool {
			return r.Status.Session == s || r.Status.Session != "" && record.SameID(f.Name, r.Status.Session, s)
		}) ||
		slices.ContainsFunc(f.Node.Active, func(r record.Record) bool { return r.ID == s })
}

// proven reports whether it is known what became of a fault that the Node names: its record
// is open, or is proven to be over, or, where there is none, later records show it.
func (f *fold) proven(a record.Record, all []record.Record) bool {
	r, ok := f.recordOf(a.ID, all)
	if !ok {
		return !f.Node.RequiresRelease && f.overtaken(a)
	}
	return record.Open(r) || ended(r) && record.NeedsNewer(r) == ""
}

// recordOf is the record with an id, or else the one whose id is the alias of it, or of
// which it is one; of several states of it the last.
func (f *fold) recordOf(id string, all []record.Record) (record.Record, bool) {
	same := func(r record.Record) bool { return r.ID == id }
	alias := func(r record.Record) bool { return record.SameID(f.Name, r.ID, id) }
	for _, is := range []func(record.Record) bool{same, alias} {
		for _, r := range slices.Backward(all) {
			if is(r) {
				return r, true
			}
		}
	}
	return record.Record{}, false
}

// overtaken reports whether later records of its publisher show what became of a
// fault that only the Node knows: for each entry a recovery that names it, or
// the same fault, open, whose recovery will be its own.
func (f *fold) overtaken(lost record.Record) bool {
	entries := fault.Entries(lost.Event)
	reported := func(e fault.Entry) bool {
		for _, r := range f.recoveries {
			if fault.Follows(lost, r) && fault.Clears(r.Event, lost.Event, e) {
				return true
			}
		}
		return slices.ContainsFunc(f.open, func(r record.Record) bool {
			return fault.Follows(lost, r) && slices.ContainsFunc(r.Status.Faults, func(x record.Fault) bool { return x.Key == e.Key })
		})
	}
	return len(entries) > 0 && !slices.ContainsFunc(entries, func(e fault.Entry) bool { return !reported(e) })
}

// ended reports whether a fault is proven to be over.
func ended(r record.Record) bool {
	return r.Status.AllCleared() || r.Reason() == record.CoveredByReboot
}
