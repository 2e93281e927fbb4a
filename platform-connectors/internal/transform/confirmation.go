package transform

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// This part of the package has waiting faults of the connector's node acted upon once they
// are confirmed. It follows the spool as a reader of its own and keeps what waits in a file
// beside it; a confirmation is decided and kept there first, then appended to the spool,
// from which the store, through whatever stands before it, and the node's conditions get it
// like every event.
//
// After a crash it is appended again: its id follows from the waiting event's, so that spool
// and store have it once.

const (
	batch = 256
	// most bounds the entries between two writes of the file.
	most = 4096
	// pace is the least time between two writes of the file: they share the disk
	// with the spool's, for which publishers wait.
	pace = 100 * time.Millisecond
	// retryAfter is the time until a write is tried again that the disk did not take, or
	// for which the spool had no space.
	retryAfter = time.Second
)

// ConfirmationSpool is what is followed, and where confirmations go.
type ConfirmationSpool interface {
	Read(after uint64, limit int) (entries []spool.Entry, upTo uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Bounds() (released, committed uint64)
	Append(ctx context.Context, records []record.Record) error
}

// SpoolConfirmer takes the index up to which the file holds the spool.
type SpoolConfirmer interface{ Confirm(index uint64) error }

// Confirmation keeps what waits in step with the spool.
type Confirmation struct {
	// Path is the file of what waits.
	Path   string
	Spool  ConfirmationSpool
	Reader SpoolConfirmer
	// Evaluate returns the pipeline's form of an event, and notes on its confirmation.
	Evaluate func(context.Context, record.Record) (record.Event, pipeline.Notes)
	Clock    clock.Clock
	Log      *slog.Logger
	Metrics  *ConfirmationMetrics

	state state
	// stands is since when each wait was seen standing in this life, by a clock
	// that nobody sets: what a restart or a clock that is set right would make of
	// the times of acceptance confirms nothing.
	stands map[standing]time.Time

	obeyed changeCounts
	wake   retry.Wake

	mu     sync.Mutex
	outage retry.Outage
	ends   nodeclient.Ends
	heard  changeCounts
}

// changeCounts counts what changes what is known of entries that were read.
type changeCounts struct {
	releases int // of the Node: somebody has ended faults of it
	rules    int
}

// Waker returns what to call when the rules have changed; it comes before Run. Events that
// the store does not have yet are then evaluated again, as by the forwarder.
func (f *Confirmation) Waker() func() {
	f.wake = retry.NewWake()
	return func() {
		f.mu.Lock()
		f.heard.rules++
		f.mu.Unlock()
		f.wake.Call()
	}
}

// See takes the Node as it is now. When somebody has ended faults of it, what comes
// again has to be confirmed again.
func (f *Confirmation) See(node *corev1.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends.See(node) {
		f.heard.releases++
	}
}

func (f *Confirmation) changeCounts() changeCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}

// standing is one wait.
type standing struct {
	key   string
	since int64
}

func standingOf(w pipeline.WaitingFault) standing { return standing{w.Key, w.Since.UnixNano()} }

// Load reads the file; it comes before everything else.
func (f *Confirmation) Load() {
	state, problem := loadState(f.Path)
	if problem != "" {
		f.Log.Error("pending confirmations lost: such faults are confirmed only by new signals",
			"file", f.Path, "problem", problem)
	}
	state.Index, _ = f.Spool.Bounds()
	f.take(state)
}

// take makes a state the present one.
func (f *Confirmation) take(s state) {
	stands := map[standing]time.Time{}
	for _, w := range s.Set.Waits {
		at, known := f.stands[standingOf(w)]
		if !known {
			at = f.Clock.Now()
		}
		stands[standingOf(w)] = at
	}
	f.state, f.stands = s, stands
	f.Metrics.waiting.Set(float64(s.Set.Waiting()))
}

// Ready reports whether the file and the spool took the last change.
func (f *Confirmation) Ready() (bool, string) {
	if ok, detail := f.outage.Ready(); !ok {
		return false, detail
	}
	return true, "following the write-ahead log"
}

// Run follows the spool until ctx ends.
func (f *Confirmation) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		calm := f.Clock.After(pace)
		err := f.step(ctx)
		f.note(err)
		if err != nil {
			calm = f.Clock.After(retryAfter)
		} else {
			f.wait(ctx)
		}
		select {
		case <-ctx.Done():
		case <-calm:
		}
	}
	return nil
}

// note logs the first failure of a row.
func (f *Confirmation) note(err error) {
	if begins, _ := f.outage.Note(err); begins {
		f.Log.Error("fault confirmation failed, retrying without data loss", "error", err)
	}
}

// step takes what is new, decides, and hands on what was decided.
func (f *Confirmation) step(ctx context.Context) error {
	if err := f.fold(ctx); err != nil {
		return err
	}
	if len(f.state.Set.Outbox) == 0 {
		return nil
	}
	crashpoint.Here("platform-connectors/confirmation-kept")
	if err := f.Spool.Append(ctx, f.state.Set.Outbox); err != nil {
		return err
	}
	crashpoint.Here("platform-connectors/confirmation-spooled")
	for _, r := range f.state.Set.Outbox {
		f.Log.Info("fault confirmed and processed", "event", r.Event.Confirms(), "confirmation", r.ID, "check", r.Event.CheckName,
			"rule", r.Event.Metadata[record.MetadataConfirmedRule], "by", r.Event.Metadata[record.MetadataConfirmedBy],
			"how", r.Event.Metadata[record.MetadataConfirmedHow])
	}
	next := f.state
	next.Set = next.Set.Clone()
	next.Set.Outbox = nil
	return f.keep(next)
}

// fold takes the next entries into the set, and the time once there are no more. A set that
// has changed is durable before the entries are confirmed to the spool. A place is not,
// because what lies between changes nothing when it is read again.
func (f *Confirmation) fold(ctx context.Context) error {
	next, changed, heard := f.state, false, f.changeCounts()
	next.Set = next.Set.Clone()
	var ends []pipeline.WaitEnd
	if heard.releases != f.obeyed.releases {
		changed = next.Set.Release()
	}
	if heard.rules != f.obeyed.rules {
		next.Index, _ = f.Spool.Bounds()
	}
	for from := next.Index; next.Index-from < most && len(next.Set.Outbox) < batch; {
		entries, upTo, err := f.Spool.Read(next.Index, batch)
		if err != nil {
			return err
		}
		if upTo == next.Index {
			passed := next.Set.Pass(f.Clock.Now().UTC(), f.stood)
			ends, changed = append(ends, passed...), changed || len(passed) > 0
			break
		}
		for _, e := range entries {
			ended, touched := next.Set.Fold(f.observation(ctx, e.Record))
			ends, changed = append(ends, ended...), changed || touched
		}
		next.Index = upTo
	}
	if changed {
		if err := f.keep(next); err != nil {
			return err
		}
	}
	f.obeyed = heard
	f.take(next)
	f.Metrics.count(ends)
	// This includes what the previous process kept, and did not confirm.
	return f.Reader.Confirm(next.Index)
}

// keep makes a state durable, and the present one.
func (f *Confirmation) keep(s state) error {
	if _, err := durable.Save(f.Path, s); err != nil {
		return err
	}
	f.take(s)
	return nil
}

func (f *Confirmation) observation(ctx context.Context, r record.Record) pipeline.Observation {
	as, notes := f.Evaluate(ctx, r)
	return pipeline.Observation{Record: r, As: as, Notes: notes}
}

// stood is for how long a wait has been seen standing in this life.
func (f *Confirmation) stood(w pipeline.WaitingFault) time.Duration {
	began, known := f.stands[standingOf(w)]
	if !known {
		return 0
	}
	return f.Clock.Since(began)
}

// Try computes what folding computes of one record, and keeps nothing. A lookup
// that would have to wait for anybody is done without.
func (f *Confirmation) Try(r record.Record) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var alone pipeline.Signals
	alone.Fold(f.observation(ctx, r))
}

// wait blocks until there is something to read, or a wait may end by time.
func (f *Confirmation) wait(ctx context.Context) {
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	var due <-chan time.Time
	if in, ends := f.due(); ends {
		timer := f.Clock.NewTimer(in)
		defer timer.Stop()
		due = timer.C()
	}
	go func() {
		select {
		case <-due:
		case <-f.wake:
		case <-soon.Done():
		}
		cancel()
	}()
	_ = f.Spool.Wait(soon, f.state.Index)
}

// due is when the next wait ends by time, if any does.
func (f *Confirmation) due() (in time.Duration, ends bool) {
	now := f.Clock.Now()
	for _, w := range f.state.Set.Waits {
		left, ok := w.LapsesIn(now)
		if w.Rule.StandsFor > 0 && w.ConfirmedAt.IsZero() {
			left, ok = w.Rule.StandsFor-f.stood(w), true
		}
		if ok && (!ends || left < in) {
			in, ends = left, true
		}
	}
	return max(in, 0), ends
}
