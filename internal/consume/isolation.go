package consume

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Memory is what a loop remembers across the crashes of its process; it is one of
// all replicas.
type Memory interface {
	crashloop.Memory
	// IsDeadLetter reports whether a record is a dead letter, as of the last Load or
	// MoveToDeadLetters.
	IsDeadLetter(id string) bool
	// Count is how many records are dead-lettered.
	Count() int
}

// Vetting finds the record that kills the process, with a crashloop.Guard. In isolation
// mode a key that was in flight at a crash comes last, and its records are
// tried one by one before it is handled. Only a record that is alone in flight in
// such a try at several crashes in a row is dead-lettered: a try takes moments,
// waits for nobody and comes at another time after each start, so that no crash of
// another cause hits the same one again and again.
//
// Loops of one process that share a Vetting share its account: one thing is in
// flight at a time among all of them. It must not be copied once it is in use.
type Vetting[R any] struct {
	Memory Memory
	// ID of a delivery or record.
	ID func(R) string
	// Records are those that the handler of a key reads; items are known. Nil means that no record
	// is dead-lettered for what becomes of its key: that only makes others go first.
	Records func(ctx context.Context, key string, each func(R) error) error
	// Try computes what handling computes of one record, without any effect and
	// without waiting for anybody. Nil computes nothing; Records need it.
	Try func(ctx context.Context, r R)
	// Process is shared with the accounts of other services in this process; may be nil.
	Process *crashloop.Process
	// Report lets people know of what was dead-lettered, besides the log; may be nil.
	Report func(ctx context.Context, w crashloop.Work)

	crashLoop crashLoop
}

// suspected is why a key waits.
const suspected = "the process crashed while it handled this key, other keys are handled first"

// crashLoop is the part of the loops of one process in its account.
type crashLoop struct {
	crashloop.Guard
	// beginning is done by the first loop; the others wait for it.
	beginning sync.Once

	mu    sync.Mutex
	loops int // that run
}

// reportingMemory is the memory, and lets people know of what it dead-letters.
type reportingMemory struct {
	Memory
	report func(ctx context.Context, w crashloop.Work)
}

// MoveToDeadLetters implements crashloop.Memory.
func (r reportingMemory) MoveToDeadLetters(ctx context.Context, w crashloop.Work) error {
	err := r.Memory.MoveToDeadLetters(ctx, w)
	if err == nil && r.report != nil {
		r.report(ctx, w)
	}
	return err
}

// join lets a loop take part in the account, which the first one begins.
func (l *Loop[R]) join(ctx context.Context) {
	v := l.crashLoop
	v.mu.Lock()
	v.loops++
	v.mu.Unlock()
	if l.Vet != nil {
		v.beginning.Do(func() {
			v.Process = l.Vet.Process
			v.Begin(ctx, reportingMemory{l.Vet.Memory, l.Vet.Report}, l.Clock, l.Log)
		})
	}
}

// leave ends a loop's part; the last one ends the account.
func (l *Loop[R]) leave(ctx context.Context) {
	v := l.crashLoop
	v.mu.Lock()
	v.loops--
	last := v.loops == 0
	v.mu.Unlock()
	if last && l.Vet != nil {
		v.End(ctx)
	}
}

// landed notes that nothing is in flight. If that fails, the next note replaces
// this one; a stop forgets it.
func (l *Loop[R]) landed(ctx context.Context) {
	if err := l.crashLoop.Note(ctx, crashloop.Work{}); err != nil && ctx.Err() == nil {
		l.Log.Warn("in-flight record not cleared", "error", err)
	}
}

// vetted runs the handler; in isolation mode alone and noted, and after a try of
// each record of a suspect.
func (l *Loop[R]) vetted(ctx context.Context, key string) error {
	isolates, suspect, rest := l.crashLoop.Turn(key)
	if !isolates {
		return l.call(ctx, key)
	}
	if rest > 0 {
		return retry.Wait(rest, suspected)
	}
	l.crashLoop.Take()
	defer l.crashLoop.Give()
	if err := l.crashLoop.Note(ctx, crashloop.Work{Key: key}); err != nil {
		return err
	}
	defer l.landed(ctx)
	if suspect && (l.Vet.Records != nil || l.Items != nil) {
		if err := l.tryAll(ctx, key); err != nil {
			return err
		}
	}
	err := l.call(ctx, key)
	if suspect && ctx.Err() == nil {
		l.crashLoop.Survived()
	}
	return err
}

// tryAll tries the records of a key one by one, each alone in flight.
func (l *Loop[R]) tryAll(ctx context.Context, key string) error {
	try := func(r R) error { return l.try(ctx, crashloop.Work{Key: key, Record: l.Vet.ID(r)}, r) }
	var err error
	if l.Items == nil {
		err = l.Vet.Records(ctx, key, try)
	}
	for _, r := range l.Waiting(key) {
		if err == nil {
			err = try(r)
		}
	}
	return errors.Join(err, l.crashLoop.Note(ctx, crashloop.Work{Key: key}))
}

// try has a record alone in flight while it is tried.
func (l *Loop[R]) try(ctx context.Context, w crashloop.Work, r R) error {
	if err := l.crashLoop.Announce(ctx, w); err != nil {
		return err
	}
	if l.Vet.Try != nil {
		l.Vet.Try(ctx, r)
	}
	return nil
}

// isDeadLetter reports whether a delivery shows a record that is dead-lettered.
func (l *Loop[R]) isDeadLetter(item R) bool {
	return l.Vet != nil && l.Vet.Memory.IsDeadLetter(l.Vet.ID(item))
}

// admit reads a delivery's key, which is empty for a record that is dead-lettered. In
// isolation mode, after a crash in it with nothing in flight, that is in flight too.
func (l *Loop[R]) admit(ctx context.Context, item R) (key string, err error) {
	if l.Vet == nil {
		return l.Key(item), nil
	}
	if l.isDeadLetter(item) {
		return "", nil
	}
	w := crashloop.Work{Record: l.Vet.ID(item)}
	if !l.crashLoop.Isolates() || !l.crashLoop.Deep() {
		return l.Key(item), nil
	}
	l.crashLoop.Take()
	defer l.crashLoop.Give()
	for err = l.try(ctx, w, item); err != nil; err = l.try(ctx, w, item) {
		l.fail("memory", err)
		if !retry.Sleep(ctx, l.Clock, time.Second) {
			return "", ctx.Err() // the next process reads it again
		}
	}
	defer l.landed(ctx)
	return l.Key(item), nil
}
