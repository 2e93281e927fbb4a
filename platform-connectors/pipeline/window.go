package pipeline

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	// maxWindow bounds how long repeats may be suppressed.
	maxWindow = time.Hour
	// maxSeen bounds the remembered faults; more are not remembered, so that
	// their repeats count as faults.
	maxSeen = 4096
)

// MetadataRepeatOf names the record that a demoted repeat repeats.
const MetadataRepeatOf = record.MetadataRepeatOf

// Window remembers the faults that the sink has, to recognise their repeats. It
// is not safe for concurrent use; the zero value remembers nothing.
type Window struct {
	seen    map[string]seen
	cleaned time.Time
}

type seen struct {
	id    string
	at    time.Time
	event record.Event
}

// Position is what an event is to the window.
type Position struct {
	// Key is empty when the event can be no repeat and have none.
	Key string
	// Of is the id of the record that it repeats.
	Of string
}

// Look says what a record is to the window. A recovery makes the window forget
// the faults it names; whatever follows is no repeat of them.
func (w *Window) Look(d Dedup, r record.Record) Position {
	e := r.Event
	if e.IsHealthy {
		w.forget(e)
		return Position{}
	}
	if !r.Acts() || !slices.Contains(d.IncludeChecks, e.CheckName) {
		return Position{}
	}
	position := Position{Key: Key(e)}
	first, known := w.seen[position.Key]
	age := r.CreatedAt.Sub(first.at)
	if known && first.id != r.ID && age >= 0 && age < d.SuppressionWindow {
		position.Of = first.id
	}
	return position
}

// Stored remembers a fault that is no repeat, once the sink has it.
func (w *Window) Stored(d Dedup, p Position, r record.Record) {
	if r.CreatedAt.Sub(w.cleaned) >= d.CleanupInterval {
		w.cleaned = r.CreatedAt
		for key, s := range w.seen {
			if age := r.CreatedAt.Sub(s.at); age < 0 || age >= d.SuppressionWindow {
				delete(w.seen, key)
			}
		}
	}
	if p.Key == "" || p.Of != "" || len(w.seen) >= maxSeen {
		return
	}
	if w.seen == nil {
		w.seen = map[string]seen{}
	}
	e := r.Event
	w.seen[p.Key] = seen{r.ID, r.CreatedAt, record.Event{
		Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
		ErrorCode: e.ErrorCode, EntitiesImpacted: e.EntitiesImpacted,
	}}
}

// forget drops the faults of which a recovery names any entry.
func (w *Window) forget(recovery record.Event) {
	for key, s := range w.seen {
		for _, entry := range fault.Entries(s.event) {
			if fault.Clears(recovery, s.event, entry) {
				delete(w.seen, key)
				break
			}
		}
	}
}

// Demote makes a repeat one that is stored and nothing else.
func Demote(e record.Event, of string) record.Event {
	metadata := maps.Clone(e.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[MetadataRepeatOf] = of
	e.Metadata, e.ProcessingStrategy = metadata, record.PersistOnly
	return e
}

// Key is what two events must share for one to be a repeat of the other: all
// that a later room decides by, the strategy and the boot included, and what only a
// newer version knows. Order of entities and codes does not count.
func Key(e record.Event) string {
	var entities []string
	for _, x := range e.EntitiesImpacted {
		entities = append(entities, x.EntityType+"\x00"+x.EntityValue)
	}
	slices.Sort(entities)
	codes := slices.Clone(e.ErrorCode)
	slices.Sort(codes)
	b, err := json.Marshal([]any{
		e.NodeName, e.Agent, e.ComponentClass, e.CheckName, slices.Compact(entities), slices.Compact(codes),
		e.ProcessingStrategy, e.IsFatal, e.EffectiveAction(), e.BootID(), e.QuarantineOverrides, e.DrainOverrides,
		registers(e), e.Unread, e.Extra,
	})
	if err != nil {
		return strings.Join(append(entities, e.ID), "\x00") // strings always encode; if not, nothing repeats it
	}
	return string(b)
}

// registers are those of an XID 74: health-events-analyzer derives other faults
// from other bits, and does not see what is stored as a repeat.
func registers(e record.Event) []string {
	var out []string
	for i := range 7 {
		key := record.MetadataRegister + strconv.Itoa(i)
		if v, ok := e.Metadata[key]; ok {
			out = append(out, key, v)
		}
	}
	return out
}
