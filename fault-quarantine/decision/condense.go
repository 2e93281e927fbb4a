package decision

import (
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Recoveries are those of the pending records, in the order in which an evaluation
// takes them.
func Recoveries(pending []record.Record) []record.Record {
	return slices.DeleteFunc(fault.InOrder(record.Acting(pending)), func(r record.Record) bool { return !r.Event.IsHealthy })
}

// Condense is what an evaluation needs of an open record, without what names its faults,
// which may be a MiB: those of its entries that are open and that the same ones of
// the recoveries may clear are one, with the ids of those as its key, or none.
func Condense(r record.Record, recoveries []record.Record) record.Record {
	out := r
	e := r.Event
	out.Event = record.Event{
		Version: e.Version, ID: e.ID, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
		IsFatal: e.IsFatal, IsHealthy: e.IsHealthy, RecommendedAction: e.RecommendedAction, CustomRecommendedAction: e.CustomRecommendedAction,
		GeneratedTimestamp: e.GeneratedTimestamp, ProcessingStrategy: e.ProcessingStrategy, Metadata: map[string]string{},
	}
	for _, key := range record.OrderKeys {
		if v, ok := e.Metadata[key]; ok {
			out.Event.Metadata[key] = strings.Clone(v)
		}
	}
	out.Status.Faults = nil
	for i, by := range clearing(r, recoveries) {
		known := slices.ContainsFunc(out.Status.Faults, func(f record.Fault) bool { return f.Key == by })
		if r.Status.Faults[i].ClearedTimestamp == nil && !known {
			out.Status.Faults = append(out.Status.Faults, record.Fault{Key: by})
		}
	}
	return out
}

// Expand is the status of a record after an evaluation that had it condensed, among the
// same recoveries.
func Expand(full, condensed record.Record, recoveries []record.Record) record.Status {
	out := condensed.Status
	out.Faults = slices.Clone(full.Status.Faults)
	for i, by := range clearing(full, recoveries) {
		for _, f := range condensed.Status.Faults {
			if f.Key == by && out.Faults[i].ClearedTimestamp == nil {
				out.Faults[i].ClearedTimestamp, out.Faults[i].ClearedBy = f.ClearedTimestamp, f.ClearedBy
			}
		}
	}
	return out
}

// clearing returns for each entry of an open record which of the recoveries may clear it:
// the ids of the first one and, as others may have to wait, of a person's first, or
// nothing.
func clearing(r record.Record, recoveries []record.Record) []string {
	by := make([]string, len(r.Status.Faults))
	later := slices.DeleteFunc(slices.Clone(recoveries), func(rec record.Record) bool { return !fault.Before(r, rec) })
	if len(later) == 0 {
		return by
	}
	byHand := slices.DeleteFunc(slices.Clone(later), func(rec record.Record) bool { return !clearedManually(rec) })
	for i, e := range fault.EntriesOf(r)[:len(by)] {
		clears := func(rec record.Record) bool { return fault.Clears(rec.Event, r.Event, e) }
		var ids []string
		for _, some := range [][]record.Record{later, byHand} {
			if n := slices.IndexFunc(some, clears); n >= 0 {
				ids = append(ids, some[n].ID)
			}
		}
		by[i] = strings.Join(slices.Compact(ids), idsApart)
	}
	return by
}

// idsApart separates the ids in the key of a condensed record.
const idsApart = " "

// clearedManually reports whether a recovery is a person's clearing of one record.
func clearedManually(r record.Record) bool {
	return r.ID == fault.ClearingID(r.Event.Metadata[fault.MetadataClears])
}
