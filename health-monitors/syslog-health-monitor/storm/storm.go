// Package storm decides which of a monitor's events are reported at once and
// which are counted: when a kind of event comes again and again, its first ones
// are reported as they are, and the others as one event a minute, the newest of
// them, that states how many it stands for and when they happened, in the form of
// record.Repeated. It does no I/O and reads no clock.
//
// Events are of one kind if they differ only in their text, time and id: the same
// check, codes, entities, severity, action and metadata. So a storm of one code on
// one GPU holds back neither another code nor another GPU.
//
// What is counted is the owner's to keep: a Counter is encoded together with the
// place up to which the log was read.
package storm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	// Burst is how many events of a kind are reported at once before the others of
	// a Window are counted.
	Burst = 10
	// Window is how often what is counted is reported while it goes on.
	Window = time.Minute
	// QuietPeriod is how long a kind has to be quiet until its last is reported.
	QuietPeriod = 10 * time.Second
	// MaxKinds bounds the kinds that are distinguished. Events of others are reported
	// at once.
	MaxKinds = 1024
	// MaxEvent bounds the bytes of an event that is counted; larger ones are
	// reported at once.
	MaxEvent = 4 << 10
	// MaxCounted bounds the kinds of which events are held.
	MaxCounted = 256
	// together is the pause from which on repeats are another burst, and maxBurst
	// how many readers believe in one.
	together = time.Second
	maxBurst = 1 << 20
)

// MetadataLost is the metadata key whose numbers are added up when events are
// counted: the lines that a gap has lost.
const MetadataLost = "lostLines"

// Counter counts the events of one monitor. Its zero value has counted nothing.
type Counter struct {
	Kinds map[string]Kind `json:"kinds,omitempty"`
}

// Kind is what is known about the events of one kind.
type Kind struct {
	Check string `json:"check"`
	// Began is when its window did, Sent how many of its events were reported at
	// once.
	Began time.Time `json:"began"`
	Sent  int       `json:"sent"`
	// Bursts are the events that are counted and not reported yet.
	Bursts []record.Burst `json:"bursts,omitempty"`
	// Newest is the last of them, encoded, and At when it was counted.
	Newest []byte    `json:"newest,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Lost is the sum of their MetadataLost.
	Lost int64 `json:"lost,omitempty"`
}

// Take takes an event and returns what is to be reported now, in this order: the
// event, or nothing when it is counted.
func (c *Counter) Take(now time.Time, e *protos.HealthEvent) []*protos.HealthEvent {
	key, ok := identify(e)
	k, known := c.Kinds[key]
	if !ok || !known && !c.hasCapacity(now) {
		return []*protos.HealthEvent{e}
	}
	if !known || len(k.Bursts) == 0 && over(now, k.Began, Window) {
		k = Kind{Check: e.CheckName, Began: now}
	}
	if k.Sent < Burst || len(k.Bursts) == 0 && c.counted() >= MaxCounted {
		k.Sent++
		c.set(key, k)
		return []*protos.HealthEvent{e}
	}
	var out []*protos.HealthEvent
	at := e.GetGeneratedTimestamp().AsTime()
	if len(k.Bursts) == record.MaxBursts && !joins(k, at) {
		out = append(out, k.event())
		k = k.reported(now)
	}
	c.set(key, k.count(now, at, e))
	return out
}

func (c *Counter) set(key string, k Kind) {
	if c.Kinds == nil {
		c.Kinds = map[string]Kind{}
	}
	c.Kinds[key] = k
}

// hasCapacity reports whether there is space for another kind.
func (c *Counter) hasCapacity(now time.Time) bool {
	if len(c.Kinds) >= MaxKinds {
		c.sweep(now)
	}
	return len(c.Kinds) < MaxKinds
}

// sweep forgets the kinds whose window has passed.
func (c *Counter) sweep(now time.Time) {
	maps.DeleteFunc(c.Kinds, func(_ string, k Kind) bool { return len(k.Bursts) == 0 && over(now, k.Began, Window) })
}

// counted is the number of kinds of which events are held.
func (c *Counter) counted() (n int) {
	for _, k := range c.Kinds {
		if len(k.Bursts) > 0 {
			n++
		}
	}
	return n
}

// Pending reports whether anything is counted that is not reported.
func (c *Counter) Pending() bool { return c.counted() > 0 }

// Due returns the events that stand for what is counted and due now, in the order of their
// last, and restarts the counts.
func (c *Counter) Due(now time.Time) []*protos.HealthEvent {
	return c.report(now, func(k Kind) bool { return over(now, k.Began, Window) || over(now, k.At, QuietPeriod) })
}

// End returns the events that stand for everything that is counted of a check
// (of all, if empty), because something follows that ends its faults. What comes
// then is new.
func (c *Counter) End(now time.Time, check string) []*protos.HealthEvent {
	out := c.report(now, func(k Kind) bool { return check == "" || k.Check == check })
	maps.DeleteFunc(c.Kinds, func(_ string, k Kind) bool { return check == "" || k.Check == check })
	return out
}

func (c *Counter) report(now time.Time, which func(Kind) bool) (out []*protos.HealthEvent) {
	var keys []string
	for key, k := range c.Kinds {
		if len(k.Bursts) > 0 && which(k) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(c.Kinds[a].At.Compare(c.Kinds[b].At), cmp.Compare(a, b))
	})
	for _, key := range keys {
		out = append(out, c.Kinds[key].event())
		c.Kinds[key] = c.Kinds[key].reported(now)
	}
	return out
}

// Clone copies the counter.
func (c Counter) Clone() Counter {
	c.Kinds = maps.Clone(c.Kinds)
	return c
}

// count counts an event. It shares nothing with the kind before.
func (k Kind) count(now, at time.Time, e *protos.HealthEvent) Kind {
	k.Bursts = slices.Clone(k.Bursts)
	if joins(k, at) {
		b := &k.Bursts[len(k.Bursts)-1]
		b.Count++
		if at.After(b.To) { // else a clock was set back
			b.To = at
		}
	} else {
		k.Bursts = append(k.Bursts, record.Burst{From: at, To: at, Count: 1})
	}
	k.Lost += lost(e)
	k.At = now
	if body, err := proto.Marshal(e); err == nil { // it was encoded before, by identify
		k.Newest = body
	}
	return k
}

func joins(k Kind, at time.Time) bool {
	if len(k.Bursts) == 0 {
		return false
	}
	last := k.Bursts[len(k.Bursts)-1]
	return at.Sub(last.To) < together && last.Count < maxBurst
}

// event is the one that stands for what is counted.
func (k Kind) event() *protos.HealthEvent {
	e := &protos.HealthEvent{}
	if err := proto.Unmarshal(k.Newest, e); err != nil {
		return &protos.HealthEvent{CheckName: k.Check, Message: fmt.Sprintf("the counted events of %s are unreadable: %v", k.Check, err)}
	}
	last := k.Bursts[len(k.Bursts)-1]
	e.GeneratedTimestamp = timestamppb.New(last.To)
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	if k.Lost > 0 {
		e.Metadata[MetadataLost] = strconv.FormatInt(k.Lost, 10)
	}
	if len(k.Bursts) > 1 || last.Count > 1 {
		e.Metadata = record.Repeated(record.Event{Metadata: e.Metadata, GeneratedTimestamp: last.To}, k.Bursts).Metadata
	}
	return e
}

// reported is the kind after its event: of what follows in the next window,
// everything is counted.
func (k Kind) reported(now time.Time) Kind {
	return Kind{Check: k.Check, Began: now, Sent: Burst}
}

// over reports whether a span has passed since a time; a clock that was set back
// has passed it.
func over(now, since time.Time, span time.Duration) bool {
	age := now.Sub(since)
	return age < 0 || age >= span
}

func lost(e *protos.HealthEvent) int64 {
	n, err := strconv.ParseInt(e.Metadata[MetadataLost], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// identify returns the key of an event's kind; false means that the event is no candidate.
func identify(e *protos.HealthEvent) (string, bool) {
	if len(e.Message) > MaxEvent {
		return "", false
	}
	kind := proto.CloneOf(e)
	kind.Id, kind.Message, kind.GeneratedTimestamp = "", "", nil
	delete(kind.Metadata, MetadataLost)
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(kind)
	if err != nil || len(body)+len(e.Message) > MaxEvent {
		return "", false
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:12]), true
}
