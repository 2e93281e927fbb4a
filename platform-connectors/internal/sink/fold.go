// Package sink shows the faults of the connector's node in Kubernetes: node
// conditions from its own durable fault set, and Kubernetes Events. It folds
// what the spool holds and never makes the spool wait for the API server.
package sink

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

const (
	foldBatch = 256
	// foldMost bounds the entries between two writes of the file.
	foldMost = 4096
	// pace is the least time between two writes of the file: they share the disk
	// with the spool's, for which publishers wait.
	pace = 100 * time.Millisecond
	// diskPace is how many bytes of the file may be written per second.
	diskPace   = 4 << 20
	retryAfter = 5 * time.Second
	// historyDeadline bounds the reading of the node's history.
	historyDeadline = 2 * time.Minute
)

// Spool is what the sink follows.
type Spool interface {
	Epoch() string
	Read(after uint64, limit int) (entries []spool.Entry, upTo uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Bounds() (released, committed uint64)
}

// Confirmer takes the index up to which the spool is folded.
type Confirmer interface{ Confirm(index uint64) error }

// History reads what the store holds of the connector's node.
type History interface {
	// History is the next page of its PROCESS records in append order, behind the
	// one at the given place; an empty page ends it.
	History(ctx context.Context, after int64) ([]record.Record, error)
}

// Fold keeps the fault set in step with the spool.
type Fold struct {
	// Path is the fault set's file.
	Path   string
	Spool  Spool
	Reader Confirmer
	// Store is asked for the node's history when the file was lost.
	Store History
	// Identity is the node's machine; records of another one are passed over
	// when the set is rebuilt.
	Identity func() record.NodeIdentity
	// Change is what the pipeline makes of a record; nil changes nothing.
	Change func(context.Context, record.Record) record.Record
	// Elsewhere are the agents whose faults are shown by the connector of role
	// cluster.
	Elsewhere []string
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   *Metrics

	work      sync.Mutex // serialises changes of the state; taken before mu
	mu        sync.Mutex // guards state
	state     state
	size      int // of the file, in bytes
	listeners []func()
}

// Load reads the fault set's file; it comes before everything else.
func (f *Fold) Load() {
	released, committed := f.Spool.Bounds()
	state, problem := loadState(f.Path, f.Spool.Epoch(), released, committed)
	_, err := os.Stat(f.Path)
	switch {
	case problem != "" && errors.Is(err, fs.ErrNotExist) && committed == 0:
		f.Log.Info("fault set not found, rebuilding it from the store", "file", f.Path)
	case problem != "":
		f.Log.Warn("fault set incomplete until it is rebuilt from the store",
			"file", f.Path, "problem", problem)
	}
	f.state = state
	f.Metrics.show(state)
}

// OnChange calls notify after every change of the set. It must not block and is
// registered before Run.
func (f *Fold) OnChange(notify func()) { f.listeners = append(f.listeners, notify) }

// Run folds what the spool holds until ctx ends. Its failures are those of the
// local disk, or of the store while the set is rebuilt; they are tried again.
func (f *Fold) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		calm := f.Clock.After(f.pace())
		err := f.step(ctx)
		if err == nil {
			err = f.wait(ctx)
		}
		select {
		case <-ctx.Done():
		case <-calm:
		}
		if err == nil || ctx.Err() != nil {
			failing = false
			continue
		}
		if !failing {
			f.Log.Error("fault set save failed, retrying", "error", err)
		}
		failing = true
		retry.Sleep(ctx, f.Clock, retryAfter)
	}
	return nil
}

// pace is the time until the file may be written again.
func (f *Fold) pace() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(pace, time.Duration(f.size)*time.Second/diskPace)
}

// step folds what the spool holds. An entry is confirmed after the set that
// contains it is durable; an incomplete set confirms nothing, so that the spool
// and the store's history together miss nothing.
func (f *Fold) step(ctx context.Context) error {
	folded, err := f.fold(ctx)
	if err != nil {
		return err
	}
	if folded {
		crashpoint.Here("platform-connectors/folded")
	}
	f.mu.Lock()
	index, complete := f.state.Index, f.state.Complete
	f.mu.Unlock()
	if !complete {
		return nil
	}
	return f.Reader.Confirm(index)
}

// fold takes the next entries, if there are any, into the set and makes it
// durable once.
func (f *Fold) fold(ctx context.Context) (folded bool, err error) {
	f.work.Lock()
	defer f.work.Unlock()
	state := f.current()
	var changes []conditions.Change
	from := state.Index
	for state.Index-from < foldMost {
		entries, upTo, err := f.Spool.Read(state.Index, foldBatch)
		if err != nil {
			return false, err
		}
		if upTo == state.Index {
			break
		}
		for _, e := range entries {
			changes = append(changes, state.Set.Fold(f.changed(ctx, e.Record)))
		}
		state.Index = upTo
	}
	if state.Index == from {
		return false, nil
	}
	if err := f.publish(state); err != nil {
		return false, err
	}
	for _, c := range changes {
		f.Metrics.folded(c)
	}
	return true, nil
}

// Try computes what folding computes of one record, and keeps nothing. A lookup
// that would have to wait for anybody is done without.
func (f *Fold) Try(r record.Record) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var alone conditions.Set
	alone.Fold(f.changed(ctx, r))
	alone.Desired()
}

// changed is a record as the pipeline makes it. The store knows it by what was
// accepted.
func (f *Fold) changed(ctx context.Context, r record.Record) record.Record {
	if f.Change == nil {
		return r
	}
	as := f.Change(ctx, r)
	if as.Event.IsFatal { // others are not kept
		as.Accepted = record.Content(r)
	}
	return as
}

// wait blocks until there is something to fold. An incomplete set is rebuilt instead.
func (f *Fold) wait(ctx context.Context) error {
	state := f.current()
	if state.Complete {
		_ = f.Spool.Wait(ctx, state.Index) // only ctx ends it early, which Run sees
		return nil
	}
	return f.rebuild(ctx)
}

// current is a copy of the state for changing.
func (f *Fold) current() state {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.Set = s.Set.Clone()
	return s
}

// publish makes a state durable, then visible. The caller holds work.
func (f *Fold) publish(s state) error {
	size, err := durable.Save(f.Path, s)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.state, f.size = s, size
	f.mu.Unlock()
	f.Metrics.show(s)
	for _, notify := range f.listeners {
		notify()
	}
	return nil
}

// stateVersion is the version of the file's shape. In version 1 each name of a
// thing that several types name together was a fault of its own.
const stateVersion = 2

// state is the sink's file: the fault set and how far it has followed the spool.
type state struct {
	Version int `json:"version"`
	// Epoch and Index are the spool's entry that was folded last.
	Epoch string `json:"epoch"`
	Index uint64 `json:"index"`
	// Complete is false as long as the set may lack faults: the file was lost
	// and not yet rebuilt from the store.
	Complete bool            `json:"complete"`
	Set      *conditions.Set `json:"set"`
}

// loadState reads the file and finds its place in the spool. A file that is
// lost or cannot be read is an incomplete, empty set.
func loadState(path, epoch string, released, committed uint64) (s state, problem string) {
	fresh := state{Version: stateVersion, Epoch: epoch, Index: released, Set: &conditions.Set{}}
	switch found, err := durable.Load(path, durable.Versions{Oldest: 1, Newest: stateVersion}, &s); {
	case err != nil:
		return fresh, err.Error()
	case !found:
		return fresh, "file not found"
	case s.Set == nil:
		return fresh, "the file has no fault set"
	}
	former := s.Version < stateVersion
	s.Version = stateVersion
	switch {
	case former && s.Set.UnpairedNames():
		// Only the events show which of its names are faults and which are healthy.
		return fresh, "the faults are from an older version"
	case s.Epoch != epoch:
		// Another spool: what the old one still held is lost, what was folded stands.
		s.Epoch, s.Index = epoch, released
	case s.Index < released || s.Index > committed:
		s.Index, s.Complete = released, false
		return s, "the write-ahead log does not continue at the saved position"
	}
	return s, ""
}
