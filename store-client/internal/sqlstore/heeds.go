package sqlstore

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// cause is why feeds are woken when a record was changed.
func cause(writer record.Writer, after record.Record) Cause {
	return Cause{By: writer, Quarantined: after.Status.NodeQuarantined, Eviction: after.Status.UserPodsEvictionStatus.Status}
}

// causes are those of a batch, each once.
func causes(writer record.Writer, after []record.Record) (out []Cause) {
	for _, r := range after {
		if c := cause(writer, r); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// heeds says whether a write is to wake the feed: one that may have made a record
// that it selects, and is not its own consumer's. What it does not heed it delivers
// with what it heeds next, or when it polls.
func (f *feed) heeds(c Cause) bool {
	switch c {
	case Anything:
		return true
	case Appended:
		return f.Kind == provider.Inserts || may(f.selector, c)
	}
	return f.Kind == provider.Changes && string(c.By) != f.Name && may(f.selector, c)
}

// may says whether a selector may match a record of which a cause tells.
func may(s record.Selector, c Cause) bool {
	known := record.Status{NodeQuarantined: c.Quarantined, UserPodsEvictionStatus: record.EvictionStatus{Status: c.Eviction}}
	return record.Selector{Quarantined: s.Quarantined, Evictions: s.Evictions}.Matches(record.Record{Status: known}) &&
		(len(s.Any) == 0 || slices.ContainsFunc(s.Any, func(a record.Selector) bool { return may(a, c) }))
}
