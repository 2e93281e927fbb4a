package conditions

import (
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

// covered says whether a record made again names all that stands under its id.
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
