package conditions

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Stored makes the records of standing faults again as they were stored, for a
// store that lost them: the same id and the same accepted content, so that a
// store that has a record takes it for the same. Of an event that named much, it
// names what still stands. Records of sets that an older version wrote, which
// lack what is needed, are left out.
func (s *Set) Stored(ids []string) []record.Record {
	var out []record.Record
	for _, id := range ids {
		r, ok := s.stored(func(f record.Record) bool { return f.ID == id })
		if !ok { // it may be known under another id
			r, ok = s.stored(func(f record.Record) bool { return record.Alias(f.Event.NodeName, f.ID) == id })
		}
		if ok {
			out = append(out, r)
		}
	}
	return out
}

func (s *Set) stored(is func(record.Record) bool) (r record.Record, ok bool) {
	for _, check := range s.Names() {
		for _, f := range s.Checks[check].Faults {
			if f.Record.Accepted == "" || !is(f.Record) {
				continue
			}
			if !ok {
				r, ok = f.Record, true
				r.Append = 0
			}
			name(&r.Event, f.Entry)
		}
	}
	return r, ok && s.covered(r)
}

// name has an event name what an entry does.
func name(e *record.Event, entry fault.Entry) {
	for _, text := range slices.Concat(entry.Names, entry.Sub) {
		kind, value, _ := strings.Cut(text, ":")
		if x := (record.Entity{EntityType: kind, EntityValue: value}); !slices.Contains(e.EntitiesImpacted, x) {
			e.EntitiesImpacted = append(e.EntitiesImpacted, x)
		}
	}
	if code := entry.Code; code != "" && !slices.Contains(e.ErrorCode, code) {
		e.ErrorCode = append(e.ErrorCode, code)
	}
}

// covered reports whether a record made again names all that stands under its id.
func (s *Set) covered(r record.Record) bool {
	made := map[string]bool{}
	for _, e := range fault.Entries(r.Event) {
		made[e.Key] = true
	}
	for _, c := range s.Checks {
		for _, f := range c.Faults {
			if f.Record.ID == r.ID && !made[f.Entry.Key] {
				return false
			}
		}
	}
	return true
}

// UnpairedNames reports whether the set has faults of one record and code whose
// names are of different types: maybe what the types name together, of which a
// version before this one made a fault for each.
func (s *Set) UnpairedNames() bool {
	type origin struct{ id, code string }
	for _, c := range s.Checks {
		types := map[origin]string{}
		for _, f := range c.Faults {
			if len(f.Entry.Names) == 0 {
				continue
			}
			kind, _, _ := strings.Cut(f.Entry.Names[0], ":")
			at := origin{f.Record.ID, f.Entry.Code}
			if known, ok := types[at]; ok && known != kind {
				return true
			}
			types[at] = kind
		}
	}
	return false
}

// trimFault keeps what recovery, order, text and a second append (see Stored)
// need of a faulty record; what it names is in its entries.
func trimFault(r record.Record) record.Record {
	e := r.Event
	return record.Record{
		ID: r.ID, Append: r.Append, Node: r.Node, Seq: r.Seq, SeqEpoch: r.SeqEpoch, CreatedAt: r.CreatedAt, Accepted: record.Content(r),
		Event: record.Event{
			ID: e.ID, Version: e.Version, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
			IsFatal: e.IsFatal, Message: cut(e.Message, maxText), RecommendedAction: e.RecommendedAction,
			CustomRecommendedAction: e.CustomRecommendedAction, ProcessingStrategy: e.ProcessingStrategy, GeneratedTimestamp: e.GeneratedTimestamp,
			QuarantineOverrides: e.QuarantineOverrides, DrainOverrides: e.DrainOverrides, Metadata: order(e), Unread: e.Unread, Extra: e.Extra,
		},
		MinVersion: r.MinVersion, Extra: r.Extra,
	}
}

// order is the metadata that states when, in its publisher's counting and under
// which boot, a fault was seen, and which unknown action it had.
func order(e record.Event) map[string]string {
	out := map[string]string{}
	for _, key := range append(slices.Clone(record.OrderKeys), record.MetadataUnknownAction) {
		if v, ok := e.Metadata[key]; ok {
			out[key] = v
		}
	}
	return out
}

// trimRecovery keeps what a recovery ends, and its order.
func trimRecovery(r record.Record) record.Record {
	e := r.Event
	out := record.Record{
		ID: r.ID, Append: r.Append, Node: r.Node, Seq: r.Seq, SeqEpoch: r.SeqEpoch,
		Event: record.Event{
			Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
			IsHealthy: true, ErrorCode: e.ErrorCode, EntitiesImpacted: e.EntitiesImpacted,
		},
	}
	if runs, ok := e.Metadata[record.MetadataSeqRuns]; ok {
		out.Event.Metadata = map[string]string{record.MetadataSeqRuns: runs}
	}
	return out
}

// size is about what a fault takes in the set's file, in bytes.
func (f *Fault) size() int {
	n := len(f.Entry.Key) + len(f.Entry.Code) + size(&f.Record)
	for _, name := range f.Entry.Names {
		n += len(name) + 3
	}
	for _, unit := range f.Entry.Sub {
		n += len(unit) + 3
	}
	return n
}

// size is about what a record of the set takes in its file, in bytes.
func size(r *record.Record) int {
	const names = 900 // of the fields
	e := &r.Event
	n := names + len(r.ID) + len(r.SeqEpoch) + len(r.Node.ProviderID) + len(e.Agent) + len(e.ComponentClass) +
		len(e.CheckName) + len(e.NodeName) + len(e.Message) + len(e.Metadata[record.MetadataSeqRuns]) +
		r.Extra.Bytes() + e.Extra.Bytes() + 4*len(e.Unread)/3
	for _, c := range e.ErrorCode {
		n += len(c) + 3
	}
	for _, x := range e.EntitiesImpacted {
		n += len(x.EntityType) + len(x.EntityValue) + 35
	}
	return n
}

// scope is what a recovery ends, and in which publisher's order.
func scope(r record.Record) string {
	e := r.Event
	b, err := json.Marshal([]any{e.Agent, e.ComponentClass, r.SeqEpoch, e.ErrorCode, e.EntitiesImpacted})
	if err != nil {
		return strings.Join(append([]string{e.Agent, r.SeqEpoch}, e.ErrorCode...), "|") // strings always encode
	}
	return string(b)
}
