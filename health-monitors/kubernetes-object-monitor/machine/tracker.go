package machine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Agent is the name of this monitor in its events.
const Agent = "kubernetes-object-monitor"

// Wording is the content of an event beside the identity of its fault.
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

// Tracker is what must outlive a leader: the open faults, the events that wait to
// be acknowledged, and the counter that orders them.
type Tracker struct {
	epoch   string
	runs    string // of the counter, this one first
	began   uint64 // the last seq given before this run
	last    uint64 // the last seq given
	open    map[Key]Fault
	waiting []Waiting // by rising seq
	weights weights
	extra   *extra.Extra // what a newer version has written besides
}

// New makes an empty tracker; epoch names its counter.
func New(epoch string) *Tracker {
	return &Tracker{
		epoch: epoch, runs: record.NextRun("", false), open: map[Key]Fault{}, weights: weights{shares: map[share]int{}},
	}
}

// EvaluationResult is one evaluation of a policy on an object.
type EvaluationResult struct {
	Key         Key
	Observation Observation
	Fault       Fault
	Wording     Wording
	At          time.Time
	// Delayed means that an event like those that may follow was rejected a short while ago.
	Delayed bool
}

// Observe decides about one evaluation and keeps what follows: the change of
// the open faults and the events, in one step. newID gives an event its id.
func (t *Tracker) Observe(s EvaluationResult, newID func() (string, error)) (Decision, error) {
	var open *Fault
	if f, ok := t.open[s.Key]; ok {
		open = &f
	}
	d := Decide(open, s.Observation, s.Fault)
	if s.Delayed {
		d = d.Hold()
	}
	if d.Report && !d.Recover {
		if err := t.hasCapacity(s.Key, s.Fault); err != nil {
			return d, err
		}
	}
	var events []*protos.HealthEvent
	if d.Recover {
		events = append(events, healthy(s, *open)...)
	}
	if d.Report {
		events = append(events, unhealthy(s, open)...)
	}
	for _, e := range events {
		id, err := newID()
		if err != nil {
			return d, fmt.Errorf("generating an event ID: %w", err)
		}
		e.Id = id
	}
	t.append(events)
	switch {
	case d.Report:
		t.close(s.Key)
		t.begin(s.Key, s.Fault)
	case d.Recover:
		t.close(s.Key)
	}
	return d, nil
}

func (t *Tracker) begin(k Key, f Fault) {
	t.open[k] = f
	t.weights.open(k, f, 1)
}

func (t *Tracker) close(k Key) {
	if f, ok := t.open[k]; ok {
		t.weights.open(k, f, -1)
		delete(t.open, k)
	}
}

func (t *Tracker) append(events []*protos.HealthEvent) {
	for _, e := range events {
		t.last++
		e.Metadata = map[string]string{
			record.MetadataSeq: strconv.FormatUint(t.last, 10), record.MetadataSeqEpoch: t.epoch, record.MetadataSeqRuns: t.runs,
		}
		t.wait(Waiting{t.last, e})
	}
}

func (t *Tracker) wait(w Waiting) {
	t.waiting = append(t.waiting, w)
	t.weights.event(w.Event, 1)
}

// Open lists the open faults' keys, sorted.
func (t *Tracker) Open() []Key {
	return slices.SortedFunc(maps.Keys(t.open), func(x, y Key) int {
		return slices.Compare([]string{x.Policy, x.Type, x.Object}, []string{y.Policy, y.Type, y.Object})
	})
}

// Fault is the open fault of a key.
func (t *Tracker) Fault(k Key) (Fault, bool) {
	f, ok := t.open[k]
	return f, ok
}

// Waiting lists the events that wait, oldest first; the list is not to be
// changed.
func (t *Tracker) Waiting() []Waiting { return t.waiting }

// Remove takes acknowledged events out.
func (t *Tracker) Remove(seqs ...uint64) {
	t.waiting = slices.DeleteFunc(slices.Clone(t.waiting), func(w Waiting) bool {
		gone := slices.Contains(seqs, w.Seq)
		if gone {
			t.weights.event(w.Event, -1)
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

func frame(s EvaluationResult, f Fault) *protos.HealthEvent {
	return &protos.HealthEvent{
		Version: 1, Agent: Agent, ComponentClass: f.ComponentClass, CheckName: s.Key.Policy, NodeName: f.Node,
		EntitiesImpacted:   []*protos.Entity{{EntityType: s.Key.Type, EntityValue: s.Key.Object}},
		GeneratedTimestamp: timestamppb.New(s.At), ProcessingStrategy: record.StrategyNumber(f.Strategy),
	}
}

func healthy(s EvaluationResult, f Fault) (out []*protos.HealthEvent) {
	for _, code := range codes(f) {
		e := frame(s, f)
		e.IsHealthy, e.Message, e.ErrorCode = true, record.HealthyMessage, code
		out = append(out, e)
	}
	return out
}

// unhealthy are the events of a fault; if an open one lacks some of its codes only, of these.
func unhealthy(s EvaluationResult, open *Fault) (out []*protos.HealthEvent) {
	w, f := s.Wording, s.Fault
	if open != nil && len(open.unreported(f)) > 0 {
		f.Codes = open.unreported(f)
	}
	for _, code := range codes(f) {
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

// Copy is a snapshot to write, which later changes of t do not touch.
func (t *Tracker) Copy() *Tracker {
	out := &Tracker{epoch: t.epoch, runs: t.runs, began: t.began, last: t.last, open: maps.Clone(t.open), extra: t.extra}
	for _, w := range t.waiting {
		out.waiting = append(out.waiting, Waiting{w.Seq, proto.CloneOf(w.Event)})
	}
	return out
}
