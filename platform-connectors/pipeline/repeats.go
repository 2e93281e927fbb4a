package pipeline

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// This part of the package decides which events of a node are stored at once and which are
// counted: repeats of an event that was stored within the window. What is counted goes to
// the store as one record, the newest of them, that states how many it stands for and when
// they happened. It does no I/O and reads no clock.
//
// An event is a repeat only if nothing that anybody decides by differs: it is the same in
// every field but its id, its time and its place in its publisher's order, its text and
// metadata included, about the same machine and boot, and the pipeline makes the same of it.
// Recoveries are never counted.

const (
	// MaxWindow bounds the window: pattern detection sees a repeat that much later.
	MaxWindow = time.Minute
	// MaxIdentities bounds the events of which repeats are recognised; those of
	// others are stored one by one.
	MaxIdentities = 4096
	// MaxRepeatBytes bounds the counted records in memory; at it, they are stored.
	MaxRepeatBytes = 8 << 20
	// MaxEvent is the size from which on an event is stored whatever it repeats.
	MaxEvent = 64 << 10
	// MaxPendingBytes bounds the events that the spool has to keep, from the first that is
	// counted and not stored: at it, what is counted is stored.
	MaxPendingBytes = 32 << 20
	// together is the pause from which on repeats are another burst.
	together = time.Second
	// maxEpochs bounds the publishers' outboxes whose order is followed.
	maxEpochs = 64
	// notes are the entries that a counting record has in its metadata.
	notes = 3
)

// Repeats counts the repeats of one node. It is not safe for concurrent use; it is
// made by NewRepeats.
type Repeats struct {
	window  time.Duration
	entries map[identity]*entry
	newest  map[string]uint64 // highest counter, by outbox
	swept   time.Time

	// counted are the entries that stand for something which is not stored.
	counted      []*entry
	due          time.Time // when they are to be stored
	oldest       uint64    // place of the first of it in the spool
	bytes        int       // of their records
	pendingBytes int       // bytes that came since the first
}

type identity [sha256.Size]byte

// entry is an event of which the store has, or is about to get, a record.
type entry struct {
	key          identity
	agent, check string
	first        string    // id of its newest stored record
	stored       time.Time // when that was given away
	last         time.Time // when the newest of all happened
	bursts       []record.Burst
	record       record.Record // the newest counted
	index        uint64        // its place in the spool
	size         int
}

// NewRepeats counts the repeats of a window, at most MaxWindow; with 0 it counts none.
func NewRepeats(window time.Duration) *Repeats {
	return &Repeats{window: window, entries: map[identity]*entry{}, newest: map[string]uint64{}}
}

// Take takes the record at a place of the spool, and its event as the pipeline
// makes it, and returns what goes to the store now, in this order.
func (c *Repeats) Take(now time.Time, index uint64, r record.Record, as record.Event) []record.Record {
	if c.window == 0 {
		return []record.Record{r}
	}
	key, size := identify(r.Node, as)
	if len(c.counted) > 0 {
		c.pendingBytes += size
	}
	ordered := c.follow(r.Event)
	if as.IsHealthy || r.Event.IsHealthy {
		return append(c.recovered(now, r.Event), r)
	}
	at := happened(r)
	if !ordered || size > MaxEvent || !notable(r.Event) {
		return []record.Record{r}
	}
	e := c.entries[key]
	if e == nil || at.Before(e.last) || len(e.bursts) == 0 && c.over(now, e) {
		c.remember(now, key, r)
		return []record.Record{r}
	}
	if r.ID == e.first || r.ID == e.record.ID {
		return []record.Record{r} // sent again, which the store knows
	}
	var out []record.Record
	if !e.hasCapacity(at) || c.bytes+size > MaxRepeatBytes || c.pendingBytes > MaxPendingBytes {
		out = c.Flush(now)
	}
	c.count(now, e, index, r, size)
	return out
}

// over reports whether the window since the last record of an event has passed.
func (c *Repeats) over(now time.Time, e *entry) bool {
	age := now.Sub(e.stored)
	return age < 0 || age >= c.window
}

// follow reports whether an event comes after all before it of its publisher. One
// that does not may belong before a recovery that has been here: it is no repeat,
// and has none.
func (c *Repeats) follow(e record.Event) bool {
	seq, epoch, ok := e.Seq()
	if !ok {
		return true
	}
	newest, followed := c.newest[epoch]
	if seq <= newest {
		return false
	}
	if !followed && len(c.newest) >= maxEpochs {
		clear(c.newest)
	}
	c.newest[epoch] = seq
	return true
}

// remember has an event that goes to the store stand for its repeats, as long as there is space.
func (c *Repeats) remember(now time.Time, key identity, r record.Record) {
	if e := c.entries[key]; e != nil {
		if len(e.bursts) == 0 { // else it happened before what is counted
			e.first, e.stored, e.last = r.ID, now, happened(r)
		}
		return
	}
	if len(c.entries) >= MaxIdentities {
		c.sweep(now)
	}
	if len(c.entries) < MaxIdentities {
		c.entries[key] = &entry{
			key: key, agent: r.Event.Agent, check: r.Event.CheckName, first: r.ID, stored: now, last: happened(r),
		}
	}
}

// sweep forgets the events whose window has passed, at most once a second.
func (c *Repeats) sweep(now time.Time) {
	if age := now.Sub(c.swept); age >= 0 && age < time.Second {
		return
	}
	c.swept = now
	maps.DeleteFunc(c.entries, func(_ identity, e *entry) bool { return len(e.bursts) == 0 && c.over(now, e) })
}

func (c *Repeats) count(now time.Time, e *entry, index uint64, r record.Record, size int) {
	if len(c.counted) == 0 {
		c.due, c.oldest, c.pendingBytes = now.Add(c.window), index, size
	}
	if len(e.bursts) == 0 {
		c.counted = append(c.counted, e)
	}
	e.add(happened(r))
	c.bytes += size - e.size
	e.record, e.index, e.size = r, index, size
}

// hasCapacity reports whether the times of an entry have space for another one.
func (e *entry) hasCapacity(at time.Time) bool {
	return len(e.bursts) < record.MaxBursts || e.joins(at)
}

func (e *entry) joins(at time.Time) bool {
	return len(e.bursts) > 0 && at.Sub(e.bursts[len(e.bursts)-1].To) < together
}

func (e *entry) add(at time.Time) {
	if e.joins(at) {
		burst := &e.bursts[len(e.bursts)-1]
		burst.To = at
		burst.Count++
	} else {
		e.bursts = append(e.bursts, record.Burst{From: at, To: at, Count: 1})
	}
	e.last = at
}

// Due is when what is counted is to be stored, by Flush; not ok is nothing.
func (c *Repeats) Due() (at time.Time, ok bool) { return c.due, len(c.counted) > 0 }

// Confirmed is up to where the spool may be released when everything up to a place
// was taken and stored: not further than what is only counted.
func (c *Repeats) Confirmed(upTo uint64) uint64 {
	if len(c.counted) > 0 {
		return min(upTo, c.oldest-1)
	}
	return upTo
}

// Flush returns the records that stand for everything that was counted, in the
// order of the spool.
func (c *Repeats) Flush(now time.Time) []record.Record {
	slices.SortFunc(c.counted, func(a, b *entry) int { return cmp.Compare(a.index, b.index) })
	out := make([]record.Record, 0, len(c.counted))
	for _, e := range c.counted {
		r := e.record
		if len(e.bursts) > 1 || e.bursts[0].Count > 1 {
			r.Accepted = record.Content(r)
			r.Event = record.Repeated(r.Event, e.bursts)
		}
		out = append(out, r)
		e.first, e.stored = r.ID, now
		e.bursts, e.record, e.size = nil, record.Record{}, 0
	}
	c.counted, c.bytes, c.pendingBytes = nil, 0, 0
	c.sweep(now)
	return out
}

// recovered makes what follows a recovery new: what was counted before it goes
// first.
func (c *Repeats) recovered(now time.Time, recovery record.Event) []record.Record {
	about := func(e *entry) bool { return e.agent == recovery.Agent && e.check == recovery.CheckName }
	var out []record.Record
	if slices.ContainsFunc(c.counted, about) {
		out = c.Flush(now)
	}
	maps.DeleteFunc(c.entries, func(_ identity, e *entry) bool { return about(e) })
	return out
}

// Release makes everything that follows new, because somebody has ended faults of
// the node, nobody knows which. What was counted until now was seen before that and
// must not begin one of them again: it is stored and nothing else.
func (c *Repeats) Release(now time.Time) []record.Record {
	firsts := map[string]string{}
	for _, e := range c.counted {
		firsts[e.record.ID] = e.first
	}
	out := c.Flush(now)
	for i, r := range out {
		out[i].Accepted = record.Content(r)
		out[i].Event = demote(r.Event, firsts[r.ID])
	}
	clear(c.entries)
	return out
}

// demote makes a repeat one that is stored and nothing else.
func demote(e record.Event, of string) record.Event {
	metadata := maps.Clone(e.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[record.MetadataRepeatOf] = of
	e.Metadata, e.ProcessingStrategy = metadata, record.PersistOnly
	return e
}

// Refused forgets a record that the store will never have.
func (c *Repeats) Refused(id string) {
	maps.DeleteFunc(c.entries, func(_ identity, e *entry) bool { return e.first == id && len(e.bursts) == 0 })
}

// Identities counts the events of which repeats are recognised.
func (c *Repeats) Identities() int { return len(c.entries) }

// notable reports whether an event can bear a count, and has none.
func notable(e record.Event) bool {
	return e.Metadata[record.MetadataRepeats] == "" && e.Metadata[record.MetadataRepeatTimes] == "" &&
		len(e.Metadata)+notes+1 <= admission.MaxMetadata // one more for Release
}

// happened is when an event happened: the time that its publisher gives, but not after it
// was accepted.
func happened(r record.Record) time.Time {
	if at := r.Event.GeneratedTimestamp; r.CreatedAt.IsZero() || !at.After(r.CreatedAt) {
		return at
	}
	return r.CreatedAt
}

// identify distinguishes events by all but id, time and place in the order, and returns the
// approximate size of one.
func identify(node record.NodeIdentity, e record.Event) (identity, int) {
	e.ID, e.GeneratedTimestamp = "", time.Time{}
	e.Metadata = maps.Clone(e.Metadata)
	delete(e.Metadata, record.MetadataSeq)
	var buffer [2048]byte // for nearly every event
	b := buffer[:0]
	for _, name := range []string{node.UID, node.ProviderID, node.SystemUUID, node.BootID} {
		b = append(append(b, name...), 0)
	}
	b, err := record.AppendEvent(b, e)
	if err != nil {
		return identity{}, MaxEvent + 1 // it always encodes; if not, it is stored
	}
	return sha256.Sum256(b), len(b)
}
