package machine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Agent is the name of this monitor in its events.
const Agent = "kubernetes-object-monitor"

// Wording is what an event says beside the identity of its fault.
type Wording struct {
	IsFatal           bool
	Message           string
	Action            record.Action
	CustomAction      string
	Quarantine, Drain *record.Override
}

// Waiting is an event that is decided and not acknowledged.
type Waiting struct {
	Seq   uint64
	Event *protos.HealthEvent
}

// Book is what must outlive a leader: the open faults, the events that wait to
// be acknowledged, and the counter that orders them.
type Book struct {
	epoch   string
	runs    string // of the counter, this one first
	began   uint64 // the last seq given before this run
	last    uint64 // the last seq given
	open    map[Key]Fault
	waiting []Waiting // by rising seq
	weights weights
}

// New makes an empty book; epoch names its counter.
func New(epoch string) *Book {
	return &Book{
		epoch: epoch, runs: record.NextRun("", false), open: map[Key]Fault{}, weights: weights{shares: map[share]int{}},
	}
}

// Seen is one evaluation of a policy on an object.
type Seen struct {
	Key     Key
	Sight   Sight
	Fault   Fault
	Wording Wording
	At      time.Time
}

// Observe decides about one evaluation and books what follows: the change of
// the open faults and the events, in one step. newID gives an event its id.
func (b *Book) Observe(s Seen, newID func() (string, error)) (Decision, error) {
	var open *Fault
	if f, ok := b.open[s.Key]; ok {
		open = &f
	}
	d := Decide(open, s.Sight, s.Fault)
	if d.Report && !d.Recover {
		if err := b.room(s.Key, s.Fault); err != nil {
			return d, err
		}
	}
	var events []*protos.HealthEvent
	if d.Recover {
		events = append(events, healthy(s, *open)...)
	}
	if d.Report {
		events = append(events, unhealthy(s)...)
	}
	for _, e := range events {
		id, err := newID()
		if err != nil {
			return d, fmt.Errorf("making an event id: %w", err)
		}
		e.Id = id
	}
	b.append(events)
	switch {
	case d.Report:
		b.close(s.Key)
		b.begin(s.Key, s.Fault)
	case d.Recover:
		b.close(s.Key)
	}
	return d, nil
}

func (b *Book) begin(k Key, f Fault) {
	b.open[k] = f
	b.weights.open(k, f, 1)
}

func (b *Book) close(k Key) {
	if f, ok := b.open[k]; ok {
		b.weights.open(k, f, -1)
		delete(b.open, k)
	}
}

func (b *Book) append(events []*protos.HealthEvent) {
	for _, e := range events {
		b.last++
		e.Metadata = map[string]string{
			record.MetadataSeq: strconv.FormatUint(b.last, 10), record.MetadataSeqEpoch: b.epoch, record.MetadataSeqRuns: b.runs,
		}
		b.wait(Waiting{b.last, e})
	}
}

func (b *Book) wait(w Waiting) {
	b.waiting = append(b.waiting, w)
	b.weights.event(w.Event, 1)
}

// Open lists the open faults' keys, sorted.
func (b *Book) Open() []Key {
	return slices.SortedFunc(maps.Keys(b.open), func(x, y Key) int {
		return slices.Compare([]string{x.Policy, x.Type, x.Object}, []string{y.Policy, y.Type, y.Object})
	})
}

// Fault is the open fault of a key.
func (b *Book) Fault(k Key) (Fault, bool) {
	f, ok := b.open[k]
	return f, ok
}

// Waiting lists the events that wait, oldest first; the list is not to be
// changed.
func (b *Book) Waiting() []Waiting { return b.waiting }

// Remove takes acknowledged events out.
func (b *Book) Remove(seqs ...uint64) {
	b.waiting = slices.DeleteFunc(slices.Clone(b.waiting), func(w Waiting) bool {
		gone := slices.Contains(seqs, w.Seq)
		if gone {
			b.weights.event(w.Event, -1)
		}
		return gone
	})
}

// codes are one list per event: an event names one code, or none.
func codes(f Fault) [][]string {
	if len(f.Codes) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for _, c := range f.Codes {
		out = append(out, []string{c})
	}
	return out
}

func frame(s Seen, f Fault) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: f.ComponentClass, CheckName: s.Key.Policy, NodeName: f.Node,
		EntitiesImpacted:   []*protos.Entity{{EntityType: s.Key.Type, EntityValue: s.Key.Object}},
		GeneratedTimestamp: timestamppb.New(s.At), ProcessingStrategy: record.StrategyNumber(f.Strategy),
	}
}

func healthy(s Seen, f Fault) (out []*protos.HealthEvent) {
	for _, code := range codes(f) {
		e := frame(s, f)
		e.IsHealthy, e.Message, e.ErrorCode = true, record.HealthyMessage, code
		out = append(out, e)
	}
	return out
}

func unhealthy(s Seen) (out []*protos.HealthEvent) {
	w := s.Wording
	for _, code := range codes(s.Fault) {
		e := frame(s, s.Fault)
		e.IsFatal, e.Message, e.ErrorCode = w.IsFatal, w.Message, code
		e.RecommendedAction, e.CustomRecommendedAction = record.ActionNumber(w.Action), w.CustomAction
		e.QuarantineOverrides, e.DrainOverrides = override(w.Quarantine), override(w.Drain)
		out = append(out, e)
	}
	return out
}

func override(o *record.Override) *protos.BehaviourOverrides {
	if o == nil {
		return nil
	}
	return &protos.BehaviourOverrides{Force: o.Force, Skip: o.Skip}
}

// Copy is a snapshot to write, which later changes of b do not touch.
func (b *Book) Copy() *Book {
	out := &Book{epoch: b.epoch, runs: b.runs, began: b.began, last: b.last, open: maps.Clone(b.open)}
	for _, w := range b.waiting {
		out.waiting = append(out.waiting, Waiting{w.Seq, proto.CloneOf(w.Event)})
	}
	return out
}
