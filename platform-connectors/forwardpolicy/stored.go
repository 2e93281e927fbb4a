package forwardpolicy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	// RepeatWindow is how long a stored record makes another one with the same content a repeat:
	// somebody may end a fault, and its node does not know.
	RepeatWindow = time.Minute
	// MaxStored bounds the records that are known to be stored; further ones make no
	// repeats.
	MaxStored = 4096
	// maxText bounds the text of a fault that stands for others, in bytes.
	maxText = 1 << 10
)

// merged begins the text of a fault that stands for others.
const merged = "this fault represents all faults of its check on this node, " +
	"because the node exceeded its daily fault quota. One of them: "

// Stored is what of the records of one connection is known to be stored since its node is
// beyond its quota. Of another connection nothing is known: its records may have been
// followed by others through another gateway. The zero value knows nothing. It is not
// safe for concurrent use.
type Stored struct {
	// Server is the store that has them.
	Server string

	checks map[check]*checkHistory
	count  int
}

// check is whose word a recovery takes back.
type check struct{ agent, class, name string }

// checkHistory is what is stored of one check: faults since its last recovery, recoveries since
// its last fault.
type checkHistory struct{ faults, recoveries map[identity]once }

type identity [sha256.Size]byte

// once is when something was stored last, by which record.
type once struct {
	id string
	at time.Time
}

// Forget forgets everything: nothing is a repeat until it is stored again.
func (s *Stored) Forget() { *s = Stored{Server: s.Server} }

// Decide decides what becomes of a record at a level and returns it as it is stored. What it
// lets be stored counts as stored from then on: if it is not, call Forget.
func (s *Stored) Decide(level Level, r record.Record, now time.Time) (record.Record, Verdict) {
	switch {
	case level == Within:
		return r, Store
	case !r.Acts():
		return r, Observed
	case s.repeats(r, now):
		return r, Repeat
	}
	verdict := Store
	if one, differs := withoutEntities(r); level == Spent && differs {
		if r, verdict = one, Merge; s.repeats(r, now) {
			return r, Repeat
		}
	}
	s.note(r, now)
	return r, verdict
}

// repeats reports whether a record repeats what was stored within the window. The same record
// again is left to the store, which knows it.
func (s *Stored) repeats(r record.Record, now time.Time) bool {
	c := s.checks[of(r.Event)]
	if c == nil {
		return false
	}
	last, ok := c.alike(r.Event)[key(r)]
	age := now.Sub(last.at)
	return ok && last.id != r.ID && age >= 0 && age < RepeatWindow
}

// note notes a record as stored: a recovery resets which faults are known, and a fault which
// recoveries are.
func (s *Stored) note(r record.Record, now time.Time) {
	if s.checks == nil {
		s.checks = map[check]*checkHistory{}
	}
	c := s.checks[of(r.Event)]
	if c == nil {
		c = &checkHistory{faults: map[identity]once{}, recoveries: map[identity]once{}}
		s.checks[of(r.Event)] = c
	}
	against := c.recoveries
	if r.Event.IsHealthy {
		against = c.faults
	}
	s.count -= len(against)
	clear(against)
	mine := c.alike(r.Event)
	if _, ok := mine[key(r)]; !ok {
		if s.count >= MaxStored {
			return
		}
		s.count++
	}
	mine[key(r)] = once{r.ID, now}
}

// alike are what is known of the same kind as an event.
func (c *checkHistory) alike(e record.Event) map[identity]once {
	if e.IsHealthy {
		return c.recoveries
	}
	return c.faults
}

func of(e record.Event) check { return check{e.Agent, e.ComponentClass, e.CheckName} }

// key identifies all that anybody decides by, but for texts: the faults that an event
// names, what it asks for, and the machine and boot that it is about.
func key(r record.Record) identity {
	e := r.Event
	parts := []string{
		string(e.RecommendedAction), e.CustomRecommendedAction, override(e.QuarantineOverrides), override(e.DrainOverrides),
		fmt.Sprint(e.IsFatal), fault.Machine(r.Node), r.Node.BootID, e.BootID(),
	}
	for _, entry := range fault.Entries(e) {
		parts = append(parts, entry.Key)
	}
	text, _ := json.Marshal(parts) // of texts
	return sha256.Sum256(text)
}

func override(o *record.Override) string {
	text, _ := json.Marshal(o) // of two bools
	return string(text)
}

// withoutEntities is a fault as one of the whole check; differs is true if it was about less.
func withoutEntities(r record.Record) (_ record.Record, differs bool) {
	if r.Event.IsHealthy || len(r.Event.EntitiesImpacted) == 0 {
		return r, false
	}
	r.Accepted = record.Content(r)
	r.Event.EntitiesImpacted = nil
	text := r.Event.Message[:min(len(r.Event.Message), maxText)]
	r.Event.Message = merged + strings.ToValidUTF8(text, "")
	return r, true
}

// This part of the package decides what of a node's records is stored when the node has
// brought more than its quota of the day. It does no I/O and reads no clock.
//
// Within the quota everything is stored. Beyond it events that are for the record only, and
// repeats of what is stored, are counted instead; new faults and recoveries are stored as
// long as a reserve lasts, which is as large as the quota. When that is spent too, faults of
// a check that differ in what they are about become one fault of the whole check, which only
// a recovery of the whole check ends; what is new is stored at a trickle, and waits at its
// node for its turn. So no fault is lost, and a node that reports ever new things cannot fill
// the store.

// Quota are what a node may bring in one day, counted from midnight UTC. 0 is no bound.
type Quota struct{ Bytes, Records int64 }

// Use is what a node has brought in a day and the store has taken.
type Use struct{ Bytes, Records int64 }

// Plus is the sum of two uses.
func (u Use) Plus(o Use) Use { return Use{u.Bytes + o.Bytes, u.Records + o.Records} }

// Level is how much of its quota a node has used.
type Level int

// Levels.
const (
	// Within: the quota is not used up.
	Within Level = iota
	// Beyond: the quota is used up, the reserve is not.
	Beyond
	// Spent: the reserve is used up too.
	Spent
)

// Level of a use.
func (l Quota) Level(u Use) Level {
	switch share := l.Share(u); {
	case share >= 2:
		return Spent
	case share >= 1:
		return Beyond
	}
	return Within
}

// Share is the part of its quota that a node has used: the larger of bytes and records.
func (l Quota) Share(u Use) float64 {
	share := 0.0
	if l.Bytes > 0 {
		share = float64(u.Bytes) / float64(l.Bytes)
	}
	if l.Records > 0 {
		share = max(share, float64(u.Records)/float64(l.Records))
	}
	return share
}

// Verdict is what becomes of one record. It is the label value of a counter.
type Verdict string

// Verdicts.
const (
	// Store: the record is stored as it is.
	Store Verdict = "store"
	// Merge: the record is stored as a fault of the whole check.
	Merge Verdict = "merge"
	// Observed: the record is for the record only, and is counted.
	Observed Verdict = "persist-only"
	// Repeat: the record repeats what is stored, and is counted.
	Repeat Verdict = "repeat"
)

// Counted reports whether a record is not stored.
func (v Verdict) Counted() bool { return v == Observed || v == Repeat }

// Verdicts lists every verdict by which a record is counted or changed, in a fixed order.
func Verdicts() []Verdict { return []Verdict{Merge, Observed, Repeat} }
