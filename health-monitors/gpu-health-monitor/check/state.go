package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
)

const (
	// maxReportedXIDs bounds the XIDs that are remembered as reported; the oldest are forgotten.
	maxReportedXIDs = 4096
	// maxIDs bounds the events that are remembered of a fault: the first and the newest.
	maxIDs = 16
)

// State is what must survive the process: it is written in one step with the
// events that it goes with.
type State struct {
	// Boot is the boot id seen last.
	Boot string `json:"boot,omitempty"`
	// Faults are the open ones, by Key.
	Faults map[string]Fault `json:"faults,omitempty"`
	// Devices are the names of GPUs by their number, as DCGM reported them last: a lost
	// GPU has none.
	Devices map[uint]Names `json:"devices,omitempty"`
	// Seen holds the XIDs that were looked at, with their time in µs, by GPU, time and
	// number.
	Seen map[string]int64 `json:"seen,omitempty"`
	// LastXID is the boot under which a GPU's newest XID was seen, by its Of.
	LastXID map[string]string `json:"lastXID,omitempty"`
	// Latching holds the boot under which an XID was seen of which DCGM makes an error
	// that a field shows too, by the Of of its GPU and the error.
	Latching map[string]string `json:"latching,omitempty"`
	// Linked are the UUIDs of the GPUs whose NVLinks the metadata file once showed as up,
	// by their PCI addresses there.
	Linked map[string]string `json:"linked,omitempty"`
}

// Names are those of a GPU.
type Names struct {
	UUID string `json:"uuid,omitempty"`
	PCI  string `json:"pci,omitempty"`
}

// Fault is one that was reported and has not ended.
type Fault struct {
	Check  string         `json:"check"`
	Code   string         `json:"code"`
	Entity reading.Entity `json:"entity"`
	// Of is the GPU whose fault it is: DCGM renumbers the GPUs when one of them is gone,
	// and another one's health ends nothing. Empty for what belongs to no single GPU; then
	// GPUs and Switches are how many there were when it was reported.
	Of       string `json:"of,omitempty"`
	GPUs     int    `json:"gpus,omitempty"`
	Switches int    `json:"switches,omitempty"`
	// Names are the entities of its event: its recovery lists the same.
	Names [][2]string `json:"names,omitempty"`
	// Strategy is that of the recovery: PROCESS if any of its events was.
	Strategy record.Strategy `json:"strategy"`
	Action   record.Action   `json:"action"`
	Fatal    bool            `json:"fatal,omitempty"`
	// Boot is the one under which it was reported last.
	Boot  string    `json:"boot,omitempty"`
	Since time.Time `json:"since"`
	// Edge is true if it was an event and has no end of its own: a reboot ends it if Cured.
	Edge  bool `json:"edge,omitempty"`
	Cured bool `json:"cured,omitempty"`
	// Field is true if the value of a field showed it: a value that cannot be read shows
	// nothing about its end.
	Field bool `json:"field,omitempty"`
	// Fields are those that showed it and could be read: it has not ended while one of
	// them cannot be read, or has no recent sample.
	Fields []reading.Field `json:"fields,omitempty"`
	// Latched is true if DCGM made it of an XID: its host engine forgets it when it is
	// started again. ResetRequested is true if the driver has asked for a reset of the GPU
	// since. Cleared is true if a person cleared it: only a new XID reports it again.
	Latched        bool `json:"latched,omitempty"`
	ResetRequested bool `json:"resetAsked,omitempty"`
	Cleared        bool `json:"cleared,omitempty"`
	// IDs are those of the events that reported an Edge or Latched fault.
	IDs []string `json:"ids,omitempty"`
}

// Key identifies a fault, by the GPU that it is of where there is one.
func Key(check, of string, e reading.Entity, code string) string {
	thing := of
	if of == "" {
		thing = entityKey(e)
	} else if e.Kind == reading.Link {
		_, index := e.Link()
		thing += "/" + number(index)
	}
	return check + "|" + thing + "|" + code
}

// of is the GPU that an entity belongs to: its UUID, or its number as long as no
// UUID is known; empty for what belongs to no single GPU.
func (s State) of(e reading.Entity) string {
	if e.Kind == reading.Link {
		e, _ = e.Link()
	}
	if e.Kind != reading.GPU {
		return ""
	}
	if uuid := s.Devices[e.ID].UUID; uuid != "" {
		return uuid
	}
	return entityKey(e)
}

// described is what the metadata file has about a GPU. Its numbers may be older than
// DCGM's: they count only as long as no UUID is known.
func (s State) described(id uint, inv nodefile.Inventory) (nodefile.GPU, bool) {
	if uuid := s.Devices[id].UUID; uuid != "" {
		return inv.ByUUID(uuid)
	}
	return inv.ByIndex(number(id))
}

// linked reports whether NVLinks of a GPU were ever up.
func (s State) linked(uuid string) bool {
	for _, other := range s.Linked {
		if other == uuid {
			return true
		}
	}
	return false
}

// adopt gives the faults of a GPU its UUID, which was not known when they were reported.
func (s State) adopt(id uint, uuid string) {
	before := entityKey(reading.Entity{Kind: reading.GPU, ID: id})
	for key, f := range maps.Clone(s.Faults) {
		if f.Of == before {
			f.Of = uuid
			delete(s.Faults, key)
			s.Faults[Key(f.Check, f.Of, f.Entity, f.Code)] = f
		}
	}
}

func entityKey(e reading.Entity) string { return fmt.Sprintf("%d:%d", e.Kind, e.ID) }

// DecodeState reads what Encode wrote; nothing is an empty state.
func DecodeState(data []byte) (State, error) {
	s := State{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &s); err != nil {
			return State{}, fmt.Errorf("decoding the state: %w", err)
		}
	}
	return s.Clone(), nil
}

// Encode is the state's form on disk.
func (s State) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	return data, nil
}

// Clone copies the state; its maps are never nil.
func (s State) Clone() State {
	return State{s.Boot, copied(s.Faults), copied(s.Devices), copied(s.Seen), copied(s.LastXID), copied(s.Latching), copied(s.Linked)}
}

func copied[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}

// Name notes the id of the event that reported a fault, given by its Key.
func (s State) Name(key, id string) {
	f, open := s.Faults[key]
	if !open || !f.Edge && !latched(f) {
		return
	}
	if f.IDs = append(slices.Clone(f.IDs), id); len(f.IDs) > maxIDs {
		f.IDs = slices.Delete(f.IDs, 1, 2)
	}
	s.Faults[key] = f
}

// Clear forgets the faults that a person cleared, by the ids of their events, and returns
// their keys: what has no end of its own would count as open when it comes again. What DCGM
// shows in each poll stays, until it is shown no more; of that, what it made of an XID is
// reported again when another one comes.
func (s State) Clear(cleared func(ids []string) bool) (gone []string) {
	for key, f := range s.Faults {
		switch {
		case f.Cleared || !cleared(f.IDs):
			continue
		case f.Edge:
			delete(s.Faults, key)
		default:
			f.Cleared = true
			s.Faults[key] = f
		}
		gone = append(gone, key)
	}
	return gone
}

// forget drops the XIDs of before a time, and the oldest beyond the bound.
func (s *State) forget(before time.Time) {
	maps.DeleteFunc(s.Seen, func(_ string, at int64) bool { return at < before.UnixMicro() })
	if over := len(s.Seen) - maxReportedXIDs; over > 0 {
		keys := slices.SortedFunc(maps.Keys(s.Seen), func(a, b string) int { return int(s.Seen[a] - s.Seen[b]) })
		for _, key := range keys[:over] {
			delete(s.Seen, key)
		}
	}
}

// Memory is what one process remembers between looks; losing it costs some looks
// more until a fault begins or ends.
type Memory struct {
	raise map[string]pollHistory
	clear map[string]ending
	since map[string]time.Time // from when on each look showed a fault
	fresh map[sample]time.Time // from when on each look had a recent sample of a value
	// power holds the GPUs whose power cannot be read, and since when each look showed it,
	// by the host engine's clock in µs.
	power map[string]int64
	// connected is when the connection of the last look began.
	connected time.Time
	failures  int // looks that failed in a row
}

// NewMemory has seen nothing.
func NewMemory() Memory { return Memory{}.clone() }

func (m Memory) clone() Memory {
	return Memory{copied(m.raise), copied(m.clear), copied(m.since), copied(m.fresh), copied(m.power), m.connected, m.failures}
}

func number(n uint) string { return strconv.FormatUint(uint64(n), 10) }
