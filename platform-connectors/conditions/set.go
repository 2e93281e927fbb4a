// Package conditions is what a node's conditions must show, as a function of the
// events that were accepted: a structured set of the faults that stand, folded
// event by event in the publishers' order, and the text that is its view. It
// does no I/O and reads no clock.
package conditions

import (
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Bounds of a set, so that no publisher can fill the disk or the Node object.
const (
	// MaxChecks bounds the checks of one node.
	MaxChecks = 256
	// MaxFaults bounds the standing faults of one node.
	MaxFaults = 4096
	// MaxBytes bounds what the standing faults of one node take, about.
	MaxBytes = 8 << 20
	// maxFirst is what the first fault of a check may take even if the set is
	// full, so that no check looks healthy for want of capacity.
	maxFirst = 8 << 10
	// maxRecoveries bounds the remembered recoveries of one check, and
	// maxRecoveryBytes what they take, about.
	maxRecoveries    = 64
	maxRecoveryBytes = 64 << 10
	// MaxNotices bounds the Kubernetes Events that wait for the API server.
	MaxNotices = 256
	// maxText bounds the kept text of one fault, in bytes.
	maxText = 512
)

// Change is what folding one event did.
type Change string

// Changes.
const (
	// Unchanged: the event has no place in the set, or reports nothing new.
	Unchanged Change = "unchanged"
	// Raised: at least one fault was added or renewed.
	Raised Change = "raised"
	// Lowered: the check is healthy in what the event names.
	Lowered Change = "lowered"
	// Noticed: a fault that is not fatal, a Kubernetes Event.
	Noticed Change = "noticed"
	// Overtaken: a later recovery was folded before this fault.
	Overtaken Change = "overtaken"
	// Overflowed: the set is full.
	Overflowed Change = "overflowed"
)

// Set is the faults that stand on one node, by check. It is the durable state
// of the Kubernetes sink; the zero value is an empty set.
type Set struct {
	// Ordinal counts folded events; it orders publishers that don't count.
	Ordinal int64             `json:"ordinal"`
	Checks  map[string]*Check `json:"checks"`
	// Notices wait to be written as Kubernetes Events.
	Notices []Notice `json:"notices,omitempty"`
}

// Check is the state of one check: the owner of one condition.
type Check struct {
	Faults []Fault `json:"faults,omitempty"`
	// Recoveries are remembered to recognise a fault that arrives after a later
	// recovery of its publisher.
	Recoveries []record.Record `json:"recoveries,omitempty"`
}

// Fault is one standing fault and the record that raised it, cut to what
// recovery, order and text need.
type Fault struct {
	Entry  fault.Entry   `json:"entry"`
	Record record.Record `json:"record"`
}

// Notice is one Kubernetes Event to write.
type Notice struct {
	Agent   string `json:"agent"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Fold takes one record of this node into the set. Only PROCESS events have an
// effect. Folding a record again changes nothing.
func (s *Set) Fold(r record.Record) Change {
	e := r.Event
	if !r.Acts() {
		return Unchanged
	}
	s.Ordinal++
	if !e.IsHealthy && !e.IsFatal {
		return s.notice(e)
	}
	r.Append = s.Ordinal
	if s.Checks == nil {
		s.Checks = map[string]*Check{}
	}
	check := s.Checks[e.CheckName]
	if check == nil {
		if len(s.Checks) >= MaxChecks {
			return Overflowed
		}
		check = &Check{}
	}
	s.Checks[e.CheckName] = check
	if e.IsHealthy {
		check.recover(trimRecovery(r))
		return Lowered
	}
	change := check.raise(r, s)
	if change == Overflowed && len(check.Faults) == 0 {
		delete(s.Checks, e.CheckName) // no condition, rather than a healthy one
	}
	return change
}

// capacity is what may be added to the set.
type capacity struct{ faults, bytes int }

func (s *Set) capacity() *capacity {
	left := &capacity{MaxFaults, MaxBytes}
	for _, c := range s.Checks {
		left.faults -= len(c.Faults)
		for i := range c.Faults {
			left.bytes -= c.Faults[i].size()
		}
	}
	return left
}

// take reports whether there is capacity for a fault, and takes it.
func (c *capacity) take(f *Fault, first bool) bool {
	size := f.size()
	if (c.faults < 1 || c.bytes < size) && (!first || size > maxFirst) {
		return false
	}
	c.faults, c.bytes = c.faults-1, c.bytes-size
	return true
}

// Faults counts the standing faults of all checks.
func (s *Set) Faults() int {
	n := 0
	for _, c := range s.Checks {
		n += len(c.Faults)
	}
	return n
}

// FoldStored takes a record of the node's history into the set, as part of a
// rebuilding in append order. What was cleared by other means than a recovery
// does not stand, nor does a record of another machine than the given one.
// History makes no notices.
func (s *Set) FoldStored(r record.Record, machine record.NodeIdentity) {
	if fault.Compare(fault.Of(r), machine) == fault.AnotherMachine || (r.IsFault() && !r.Event.IsFatal) {
		return
	}
	s.Fold(r)
	check := s.Checks[r.Event.CheckName]
	if check == nil {
		return
	}
	stands := map[string]bool{}
	for i, entry := range fault.EntriesOf(r) {
		if i >= len(r.Status.Faults) || r.Status.Faults[i].ClearedTimestamp == nil {
			stands[entry.Key] = true
		}
	}
	check.Faults = slices.DeleteFunc(check.Faults, func(f Fault) bool {
		return f.Record.ID == r.ID && !stands[f.Entry.Key]
	})
}

// Clone is a deep copy.
func (s *Set) Clone() *Set {
	out := &Set{Ordinal: s.Ordinal, Checks: map[string]*Check{}, Notices: slices.Clone(s.Notices)}
	for name, c := range s.Checks {
		out.Checks[name] = &Check{slices.Clone(c.Faults), slices.Clone(c.Recoveries)}
	}
	return out
}

// recover removes what the recovery names and comes after, and remembers it.
func (c *Check) recover(recovery record.Record) {
	c.Faults = slices.DeleteFunc(c.Faults, func(f Fault) bool {
		return fault.Clears(recovery.Event, f.Record.Event, f.Entry) && fault.Before(f.Record, recovery)
	})
	same := func(r record.Record) bool { return scope(r) == scope(recovery) }
	if i := slices.IndexFunc(c.Recoveries, same); i >= 0 {
		if !fault.Before(c.Recoveries[i], recovery) {
			return
		}
		c.Recoveries = slices.Delete(c.Recoveries, i, i+1)
	}
	c.Recoveries = append(c.Recoveries, recovery)
	from, bytes := len(c.Recoveries), 0
	for from > 0 && len(c.Recoveries)-from < maxRecoveries {
		if bytes += size(&c.Recoveries[from-1]); bytes > maxRecoveryBytes {
			break
		}
		from--
	}
	c.Recoveries = slices.Delete(c.Recoveries, 0, from)
}

// raise adds the faults of a record that no later recovery has cleared, as long
// as there is capacity in the set. The capacity is counted when a fault is a new one.
func (c *Check) raise(r record.Record, in *Set) Change {
	change, trimmed := Overtaken, trimFault(r)
	var left *capacity
	for _, entry := range fault.Entries(r.Event) {
		cleared := func(recovery record.Record) bool {
			return fault.Clears(recovery.Event, r.Event, entry) && fault.Before(r, recovery)
		}
		f := Fault{entry, trimmed}
		if slices.ContainsFunc(c.Recoveries, cleared) {
			continue
		}
		if !c.renew(f) {
			if left == nil {
				left = in.capacity()
			}
			if !left.take(&f, len(c.Faults) == 0) {
				return Overflowed
			}
			c.Faults = append(c.Faults, f)
		}
		change = Raised
	}
	return change
}

// renew replaces the fault of the same identity if this one is later, and reports
// whether there was one.
func (c *Check) renew(f Fault) bool {
	for i := range c.Faults {
		if have := &c.Faults[i]; have.Entry.Key == f.Entry.Key {
			if fault.Before(have.Record, f.Record) {
				*have = f
			}
			return true
		}
	}
	return false
}

// NoticeOf is the Kubernetes Event of a fault that is not fatal.
func NoticeOf(e record.Event) Notice {
	return Notice{e.Agent, nodemark.UnhealthyReason(e.CheckName), eventText(e)}
}

func (s *Set) notice(e record.Event) Change {
	n := NoticeOf(e)
	if slices.Contains(s.Notices, n) {
		return Unchanged
	}
	s.Notices = append(s.Notices, n)
	if len(s.Notices) > MaxNotices {
		s.Notices = slices.Delete(s.Notices, 0, len(s.Notices)-MaxNotices)
		return Overflowed
	}
	return Noticed
}

// Dismiss drops the faults that records with these ids raised, which a person
// has cleared, and reports whether there were any.
func (s *Set) Dismiss(ids map[string]bool) bool {
	before := s.Faults()
	for _, c := range s.Checks {
		c.Faults = slices.DeleteFunc(c.Faults, func(f Fault) bool { return ids[f.Record.ID] })
	}
	return s.Faults() < before
}

// RemoveReported removes notices that were written.
func (s *Set) RemoveReported(written []Notice) {
	s.Notices = slices.DeleteFunc(s.Notices, func(n Notice) bool { return slices.Contains(written, n) })
}

// Names lists the checks of the set in order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.Checks)) }
