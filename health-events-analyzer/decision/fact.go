// Package decision looks for the patterns of rules in the events of one node, or of all
// nodes, and decides which derived faults begin and which are over. It is a function of the
// events and the time: an evaluation of the same events, after a crash or in another
// replica, finds the same faults under the same ids.
package decision

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// Fact is one stored event as the rules see it.
type Fact struct {
	// Record without its message and long metadata.
	Record record.Record
	// At is when the event happened: as its publisher reports, but not after it
	// was accepted.
	At time.Time

	entries []fault.Entry
	// closed is per entry when a recovery of the window closed it.
	closed []time.Time
	gpus   []string
	// registers are those of the event, if it names them all.
	registers *[registers]uint32
	// horizon is how long the event can matter to a rule.
	horizon time.Duration
	// evaluated is true if the rules were asked about it.
	evaluated bool
	// bursts are when the identical events happened that the record stands for.
	bursts []record.Burst
	// others are those of them that count, without the record's own.
	others []*Fact
}

// registers are REG0 to REG6 of XID 74.
const registers = 7

// NewFact takes what matters out of a record.
func NewFact(r record.Record) *Fact {
	at := r.Event.GeneratedTimestamp
	if !r.CreatedAt.IsZero() && r.CreatedAt.Before(at) {
		at = r.CreatedAt
	}
	f := &Fact{At: at, entries: fault.Entries(r.Event), registers: registersOf(r.Event), bursts: r.Event.Bursts()}
	f.closed = make([]time.Time, len(f.entries))
	for _, e := range f.entries {
		if len(e.Names) > 0 && isDevice(e.Names[0]) {
			f.gpus = append(f.gpus, best(e.Names))
		}
	}
	slices.Sort(f.gpus)
	f.gpus = slices.Compact(f.gpus)
	r.Event.Message = ""
	r.Event.Metadata = keep(r.Event)
	f.Record = r
	return f
}

// keep is the metadata that is looked at later.
func keep(e record.Event) map[string]string {
	out := map[string]string{}
	for _, k := range []string{record.MetadataBootID, record.MetadataSeqRuns, metadataSubject, metadataClear, metadataSources, metadataScope} {
		if v, ok := e.Metadata[k]; ok {
			out[k] = v
		}
	}
	return out
}

// deviceTypes name a GPU, best name first.
var deviceTypes = []string{"GPU_UUID:", "PCI:", "GPU:"}

func isDevice(name string) bool {
	return slices.ContainsFunc(deviceTypes, func(t string) bool { return strings.HasPrefix(name, t) })
}

func best(names []string) string {
	for _, t := range deviceTypes {
		for _, n := range names {
			if strings.HasPrefix(n, t) {
				return n
			}
		}
	}
	return names[0]
}

// registersOf reads the registers from the entities, as existing monitors give
// them, or from the metadata: 32 binary digits, or a hexadecimal number.
func registersOf(e record.Event) *[registers]uint32 {
	var out [registers]uint32
	for i := range out {
		name := "REG" + strconv.Itoa(i)
		text := e.Metadata[name]
		for _, x := range e.EntitiesImpacted {
			if x.EntityType == name {
				text = x.EntityValue
			}
		}
		base := 2
		if hex, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
			text, base = hex, 16
		}
		v, err := strconv.ParseUint(text, base, 32)
		if err != nil {
			return nil
		}
		out[i] = uint32(v)
	}
	return &out
}

// isDerived reports whether the analyzer made the event.
func (f *Fact) isDerived() bool { return f.Record.Event.Agent == record.AnalyzerAgent }

// triggers reports whether the event can trigger rules.
func (f *Fact) triggers() bool { return f.Record.IsFault() && !f.isDerived() }

// Matters returns the earliest time of the evaluations that the event, as it is now, can
// change; ok is false if it can change none.
func (f *Fact) Matters() (from time.Time, ok bool) {
	switch {
	case f.Record.Event.IsHealthy || f.triggers() && f.Record.Acts():
		return f.first(), true
	case f.isDerived():
		return f.over()
	}
	return time.Time{}, false
}

// clear closes the entries that a recovery clears; it keeps the earliest time.
func (f *Fact) clear(recovery *Fact) {
	if !f.Record.IsFault() || f.Record.Acts() && !recovery.Record.Acts() || !fault.Before(f.Record, recovery.Record) {
		return
	}
	for i, e := range f.entries {
		if (f.closed[i].IsZero() || recovery.At.Before(f.closed[i])) && fault.Clears(recovery.Record.Event, f.Record.Event, e) {
			f.closed[i] = recovery.At
		}
	}
}

// over reports whether the fault is closed, and since when: by recoveries, by its record,
// or because it was found to be no fault of its own.
func (f *Fact) over() (time.Time, bool) {
	var last time.Time
	all := true
	for _, at := range f.closed {
		all = all && !at.IsZero()
		last = later(last, at)
	}
	if all {
		return last, true
	}
	s := f.Record.Status
	switch f.Record.Reason() {
	case record.CoveredByReboot, record.Superseded:
		return s.QuarantineVerdict.At, true
	default:
	}
	if !s.AllCleared() {
		return time.Time{}, false
	}
	for _, x := range s.Faults {
		last = later(last, *x.ClearedTimestamp)
	}
	return last, true
}

// openAt reports whether the fault was not closed yet at that time.
func (f *Fact) openAt(t time.Time) bool {
	at, over := f.over()
	return !over || at.After(t)
}

// remediated is when the repair of the fault had succeeded.
func (f *Fact) remediated() (time.Time, bool) {
	s := f.Record.Status
	if s.FaultRemediated == nil || !*s.FaultRemediated || s.LastRemediationTimestamp == nil {
		return time.Time{}, false
	}
	return *s.LastRemediationTimestamp, true
}

// has reports whether the event has the value under the key.
func (f *Fact) has(k rule.Key, value string) bool {
	e := &f.Record.Event
	switch k {
	case rule.Device:
		return slices.Contains(f.gpus, value)
	case rule.Code:
		return slices.Contains(e.ErrorCode, value)
	case rule.Check:
		return e.CheckName == value
	case rule.Agent:
		return e.Agent == value
	case rule.Fatal:
		return strconv.FormatBool(e.IsFatal) == value
	case rule.Session:
		return f.Record.Status.Session == value
	case rule.Node:
		return e.NodeName == value
	}
	return slices.Contains(e.EntitiesImpacted, record.Entity{EntityType: string(k), EntityValue: value})
}

// values lists what the event has under the key.
func (f *Fact) values(k rule.Key) []string {
	e := &f.Record.Event
	switch k {
	case rule.Device:
		return f.gpus
	case rule.Code:
		return e.ErrorCode
	case rule.Check:
		return []string{e.CheckName}
	case rule.Agent:
		return []string{e.Agent}
	case rule.Fatal:
		return []string{strconv.FormatBool(e.IsFatal)}
	case rule.Session:
		if s := f.Record.Status.Session; s != "" {
			return []string{s}
		}
		return nil
	case rule.Node:
		return []string{e.NodeName}
	}
	var out []string
	for _, x := range e.EntitiesImpacted {
		if x.EntityType == string(k) && !slices.Contains(out, x.EntityValue) {
			out = append(out, x.EntityValue)
		}
	}
	return out
}

// matches reports whether the fault is one that m chooses, seen from the time t.
func (f *Fact) matches(m *rule.Match, t time.Time) bool {
	if !f.resembles(m) {
		return false
	}
	if m.Remediated {
		at, ok := f.remediated()
		return ok && !at.After(t)
	}
	return !m.Open || f.openAt(t)
}

// resembles is matches without what may change.
func (f *Fact) resembles(m *rule.Match) bool {
	e := &f.Record.Event
	return allows(m.Agents, e.Agent) && allows(m.Classes, e.ComponentClass) && allows(m.Checks, e.CheckName) &&
		(m.Fatal == nil || *m.Fatal == e.IsFatal) &&
		(len(m.Codes) == 0 || slices.ContainsFunc(e.ErrorCode, func(c string) bool { return slices.Contains(m.Codes, c) })) &&
		(len(m.NotCodes) == 0 || slices.ContainsFunc(e.ErrorCode, func(c string) bool { return !slices.Contains(m.NotCodes, c) })) &&
		!slices.ContainsFunc(m.Entities, func(t string) bool { return len(f.values(rule.Key(t))) == 0 }) &&
		(m.Register == nil || f.bit(m.Register))
}

// allows reports whether an empty list, or one that has it, allows a value.
func allows(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// bit reports whether exactly one bit is set in all registers, one of those.
func (f *Fact) bit(g *rule.Register) bool {
	if f.registers == nil {
		return false
	}
	for i, v := range f.registers {
		if "REG"+strconv.Itoa(i) != g.Name && v != 0 {
			return false
		}
	}
	v := f.registers[g.Name[3]-'0']
	return slices.ContainsFunc(g.Bits, func(b int) bool { return v == 1<<b })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
