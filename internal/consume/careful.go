package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvidia/nvsentinel/internal/delay"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// Memory is what a loop remembers across the deaths of its process; it is one of
// all replicas, and durable when a call returns.
type Memory interface {
	// Load reads the past; a loop without one has the zero value.
	Load(ctx context.Context) (Past, error)
	Save(ctx context.Context, p Past) error
	// SetAside keeps a record that killed the process for a person; from now on
	// handlers and feeds pass it over.
	SetAside(ctx context.Context, f Flight) error
	// Aside says whether a record is set aside, as of the last Load or SetAside.
	Aside(id string) bool
	// Count is how many records are set aside.
	Count() int
}

// Vetting finds the record that kills the process. It costs a write at the start
// and one when the process has lived for CalmAfter, or stops. Only when it died
// early carefulAfter times in a row is work done one thing at a time, each noted
// before: a key that was in flight at a death comes last then, and its records are
// tried one by one before it is handled. Only a record that is alone in flight in
// such a try at FatalDeaths deaths in a row is set aside: a try takes moments,
// waits for nobody and comes at another time of each life, so that no death of
// another cause hits the same one again and again.
//
// Loops of one process that share a Vetting share its account: one thing is in
// flight at a time among all of them. It must not be copied once it is in use.
type Vetting[R any] struct {
	Memory Memory
	// ID of a delivery or record.
	ID func(R) string
	// Records are those that the handler of a key reads; items are known. Nil says that no record is
	// to be set aside for what becomes of its key: that only makes others go first.
	Records func(ctx context.Context, key string, each func(R) error) error
	// Try computes what handling computes of one record, without any effect and
	// without waiting for anybody. Nil computes nothing; Records need it.
	Try func(ctx context.Context, r R)
	// Tell lets people know of what was set aside, besides the log; may be nil.
	Tell func(ctx context.Context, f Flight)

	crashLoop crashLoop
}

// remembering bounds a read or write of the memory at the start and the stop.
const remembering = 10 * time.Second

// suspected is why a key waits.
const suspected = "the process died while it handled this key; others go first"

// crashLoop is the account of this life.
type crashLoop struct {
	// beginning is done by the first loop; the others wait for it.
	beginning sync.Once
	// alone is held while one thing is in flight, saving while the memory is written.
	alone, saving baton

	// careful is read by scrapes, which must not wait for a write.
	careful atomic.Bool

	mu      sync.Mutex
	loops   int // that run
	past    Past
	began   time.Time
	handled bool          // the suspect was handled in this life
	known   bool          // the memory could be read
	took    time.Duration // the last note
}

// baton is a lock that is held while somebody else is waited for.
type baton chan struct{}

func (b baton) take() { b <- struct{}{} }
func (b baton) give() { <-b }

// join lets a loop take part in this life, which the first one begins.
func (l *Loop[R]) join(ctx context.Context) {
	v := l.crashLoop
	v.mu.Lock()
	v.loops++
	v.mu.Unlock()
	v.beginning.Do(func() {
		v.began, v.alone, v.saving = l.Clock.Now(), make(baton, 1), make(baton, 1)
		if l.Vet != nil {
			l.remember(ctx)
		}
	})
}

// leave ends a loop's part; the last one ends the account.
func (l *Loop[R]) leave(ctx context.Context) {
	v := l.crashLoop
	v.mu.Lock()
	v.loops--
	last := v.loops == 0
	v.mu.Unlock()
	if last {
		l.forget(ctx)
	}
}

// remember begins a life: it reads the past, sets aside what is proven fatal, and
// counts this start. Without its memory a loop works as ever.
func (l *Loop[R]) remember(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, remembering)
	defer cancel()
	before, err := l.Vet.Memory.Load(ctx)
	if err != nil {
		l.Log.Warn("what the process died of before is not known, going on without", "error", err)
		return
	}
	past, fatal := before.Next()
	if fatal != (Flight{}) {
		if err := l.setAside(ctx, fatal); err != nil {
			l.Log.Error("setting a record aside failed, the next start tries again", "record", fatal.Record, "error", err)
			past.Suspect, past.Deaths, past.KeyDeaths = fatal, before.Deaths, before.KeyDeaths+1
		}
	}
	if err := l.Vet.Memory.Save(ctx, past); err != nil {
		l.Log.Warn("this start is not counted", "error", err)
		return
	}
	l.crashLoop.past, l.crashLoop.known = past, true
	l.crashLoop.careful.Store(past.Careful())
	if past.Careful() {
		l.Log.Warn("the process died early again and again: one thing is done at a time until it has lived for a while",
			"deaths", past.Starts-1, "suspect", past.Suspect.Key, "record", past.Suspect.Record, "for", CalmAfter)
	}
}

// setAside keeps a record aside and says so.
func (l *Loop[R]) setAside(ctx context.Context, f Flight) error {
	if err := l.Vet.Memory.SetAside(ctx, f); err != nil {
		return err
	}
	l.Log.Error("a record killed the process each time it was looked at, alone: it is a dead letter now and passed over",
		"record", f.Record, "key", f.Key, "deaths", FatalDeaths)
	if l.Vet.Tell != nil {
		l.Vet.Tell(ctx, f)
	}
	return nil
}

// forget ends the account: by a stop, or because the process has lived for long
// enough.
func (l *Loop[R]) forget(ctx context.Context) {
	v := l.crashLoop
	v.saving.take()
	defer v.saving.give()
	v.careful.Store(false)
	if past, known := v.remembers(); !known || past == (Past{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remembering)
	defer cancel()
	if err := l.Vet.Memory.Save(ctx, Past{}); err != nil {
		l.Log.Warn("the end of careful work is not written down, a start may be careful for nothing", "error", err)
		return
	}
	v.remember(Past{}, 0)
}

// remembers is what the memory says by now, if it could be read.
func (c *crashLoop) remembers() (past Past, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.past, c.known
}

// remember notes what the memory says, and how long it took to tell it.
func (c *crashLoop) remember(past Past, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past, c.took = past, took
}

// calm waits until the process has lived for long enough, or ctx ends.
func (l *Loop[R]) calm(ctx context.Context) (yes bool) {
	select {
	case <-l.Clock.After(CalmAfter):
		l.forget(ctx)
		return true
	case <-ctx.Done():
		return false
	}
}

// note writes down what is in flight.
func (l *Loop[R]) note(ctx context.Context, f Flight) error {
	v := l.crashLoop
	v.saving.take()
	defer v.saving.give()
	past, _ := v.remembers()
	if !v.careful.Load() || past.InFlight == f {
		return nil
	}
	began := l.Clock.Now()
	past.InFlight = f
	if err := l.Vet.Memory.Save(ctx, past); err != nil {
		return fmt.Errorf("noting what is in flight: %w", err)
	}
	v.remember(past, l.Clock.Since(began))
	return nil
}

// landed notes that nothing is in flight. If that fails, the next note replaces
// this one; a stop forgets it.
func (l *Loop[R]) landed(ctx context.Context) {
	if err := l.note(ctx, Flight{}); err != nil && ctx.Err() == nil {
		l.Log.Warn("noting that nothing is in flight failed", "error", err)
	}
}

// vetted runs the handler; in a careful life alone and noted, and after a look at
// each record of a suspect.
func (l *Loop[R]) vetted(ctx context.Context, key string) error {
	careful, suspect, rest := l.crashLoop.turn(key, l.Clock.Now())
	if !careful {
		return l.call(ctx, key)
	}
	if rest > 0 {
		return outcome.Wait(rest, suspected)
	}
	l.crashLoop.alone.take()
	defer l.crashLoop.alone.give()
	if err := l.note(ctx, Flight{Key: key}); err != nil {
		return err
	}
	defer l.landed(ctx)
	if suspect && (l.Vet.Records != nil || l.Items != nil) {
		if err := l.look(ctx, key); err != nil {
			return err
		}
	}
	err := l.call(ctx, key)
	if suspect && ctx.Err() == nil {
		l.crashLoop.survived()
	}
	return err
}

// turn says how a key is handled now, and how long it has to wait for that.
func (c *crashLoop) turn(key string, now time.Time) (careful, suspect bool, rest time.Duration) {
	if !c.careful.Load() {
		return false, false, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.careful.Load() || c.handled || key != c.past.Suspect.Key {
		return c.careful.Load(), false, 0
	}
	return true, true, c.past.rest(key) - now.Sub(c.began)
}

// survived notes that the suspect was handled in this life.
func (c *crashLoop) survived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handled = true
}

// look tries the records of a key one by one, each alone in flight.
func (l *Loop[R]) look(ctx context.Context, key string) error {
	try := func(r R) error { return l.try(ctx, Flight{Key: key, Record: l.Vet.ID(r)}, r) }
	var err error
	if l.Items == nil {
		err = l.Vet.Records(ctx, key, try)
	}
	for _, r := range l.Waiting(key) {
		if err == nil {
			err = try(r)
		}
	}
	return errors.Join(err, l.note(ctx, Flight{Key: key}))
}

// try has a record alone in flight while it is tried. One that was at the last
// death, too, waits before, with its key alone noted.
func (l *Loop[R]) try(ctx context.Context, f Flight, r R) error {
	if pause := l.crashLoop.pause(f.Record); pause > 0 {
		if err := l.note(ctx, Flight{Key: f.Key}); err != nil {
			return err
		}
		if !delay.For(ctx, l.Clock, pause) {
			return ctx.Err()
		}
	}
	if err := l.note(ctx, f); err != nil {
		return err
	}
	if l.Vet.Try != nil {
		l.Vet.Try(ctx, r)
	}
	return nil
}

// pause is how long the try of a record waits.
func (c *crashLoop) pause(record string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.past.Pause(record, c.took)
}

// aside says that a delivery shows a record that is set aside.
func (l *Loop[R]) aside(item R) bool { return l.Vet != nil && l.Vet.Memory.Aside(l.Vet.ID(item)) }

// admit reads a delivery's key, which is empty for a record that is set aside. In
// a careful life whose like ended with nothing in flight, that is in flight too.
func (l *Loop[R]) admit(ctx context.Context, item R) (key string, err error) {
	if l.Vet == nil {
		return l.Key(item), nil
	}
	if l.aside(item) {
		return "", nil
	}
	id := l.Vet.ID(item)
	if !l.crashLoop.careful.Load() || !l.deep() {
		return l.Key(item), nil
	}
	l.crashLoop.alone.take()
	defer l.crashLoop.alone.give()
	for err = l.try(ctx, Flight{Record: id}, item); err != nil; err = l.try(ctx, Flight{Record: id}, item) {
		l.fail("memory", err)
		if !delay.For(ctx, l.Clock, time.Second) {
			return "", ctx.Err() // the next life reads it again
		}
	}
	defer l.landed(ctx)
	return l.Key(item), nil
}

func (l *Loop[R]) deep() bool {
	l.crashLoop.mu.Lock()
	defer l.crashLoop.mu.Unlock()
	return l.crashLoop.past.Deep
}
