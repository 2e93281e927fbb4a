package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
// and one when the process has lived for calmAfter, or stops. Only when it died
// early carefulAfter times in a row is work done one thing at a time, each noted
// before: a key that was in flight at a death comes last then, and its records are
// tried one by one before it is handled. Only a record that is alone in flight in
// such a try at fatalDeaths deaths in a row is set aside: a try takes moments and
// waits for nobody, so that no death from outside hits the same one twice.
type Vetting[R any] struct {
	Memory Memory
	// ID of a delivery or record.
	ID func(R) string
	// Records are those that the handler of a key reads. Nil says that no record is
	// to be set aside for what becomes of its key: that only makes others go first.
	Records func(ctx context.Context, key string, each func(R) error) error
	// Try computes what handling computes of one record, without any effect and
	// without waiting for anybody. Nil computes nothing; Records need it.
	Try func(ctx context.Context, r R)
	// Tell lets people know of what was set aside, besides the log; may be nil.
	Tell func(ctx context.Context, f Flight)
}

// remembering bounds a read or write of the memory at the start and the stop.
const remembering = 10 * time.Second

// suspected is why a key waits.
const suspected = "the process died while it handled this key; others go first"

// vigil is a loop's account of this life.
type vigil struct {
	// alone is held while one thing is in flight.
	alone sync.Mutex

	// careful is read by scrapes, which must not wait for a write.
	careful atomic.Bool

	mu      sync.Mutex
	past    Past
	began   time.Time
	handled bool // the suspect was handled in this life
	known   bool // the memory could be read
}

// remember begins a life: it reads the past, sets aside what is proven fatal, and
// counts this start. Without its memory a loop works as ever.
func (l *Loop[R]) remember(ctx context.Context) {
	l.vigil.began = l.Clock.Now()
	if l.Vet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remembering)
	defer cancel()
	before, err := l.Vet.Memory.Load(ctx)
	if err != nil {
		l.Log.Warn("what the process died of before is not known, going on without", "error", err)
		return
	}
	past, fatal := before.next()
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
	l.vigil.past, l.vigil.known = past, true
	l.vigil.careful.Store(past.Careful())
	if past.Careful() {
		l.Log.Warn("the process died early again and again: one thing is done at a time until it has lived for a while",
			"deaths", past.Starts-1, "suspect", past.Suspect.Key, "record", past.Suspect.Record, "for", calmAfter)
	}
}

// setAside keeps a record aside and says so.
func (l *Loop[R]) setAside(ctx context.Context, f Flight) error {
	if err := l.Vet.Memory.SetAside(ctx, f); err != nil {
		return err
	}
	l.Log.Error("a record killed the process each time it was looked at, alone: it is a dead letter now and passed over",
		"record", f.Record, "key", f.Key, "deaths", fatalDeaths)
	if l.Vet.Tell != nil {
		l.Vet.Tell(ctx, f)
	}
	return nil
}

// forget ends the account: by a stop, or because the process has lived for long
// enough.
func (l *Loop[R]) forget(ctx context.Context) {
	v := &l.vigil
	v.mu.Lock()
	defer v.mu.Unlock()
	v.careful.Store(false)
	if !v.known || v.past == (Past{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remembering)
	defer cancel()
	if err := l.Vet.Memory.Save(ctx, Past{}); err != nil {
		l.Log.Warn("the end of careful work is not written down, a start may be careful for nothing", "error", err)
		return
	}
	v.past = Past{}
}

// calm waits until the process has lived for long enough, or ctx ends.
func (l *Loop[R]) calm(ctx context.Context) (yes bool) {
	select {
	case <-l.Clock.After(calmAfter):
		l.forget(ctx)
		return true
	case <-ctx.Done():
		return false
	}
}

// note writes down what is in flight.
func (l *Loop[R]) note(ctx context.Context, f Flight) error {
	v := &l.vigil
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.careful.Load() || v.past.InFlight == f {
		return nil
	}
	past := v.past
	past.InFlight = f
	if err := l.Vet.Memory.Save(ctx, past); err != nil {
		return fmt.Errorf("noting what is in flight: %w", err)
	}
	v.past = past
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
	careful, suspect, rest := l.vigil.turn(key, l.Clock.Now())
	if !careful {
		return l.Handle(ctx, key)
	}
	if rest > 0 {
		return outcome.Wait(rest, suspected)
	}
	l.vigil.alone.Lock()
	defer l.vigil.alone.Unlock()
	if err := l.note(ctx, Flight{Key: key}); err != nil {
		return err
	}
	defer l.landed(ctx)
	if suspect && l.Vet.Records != nil {
		if err := l.look(ctx, key); err != nil {
			return err
		}
	}
	err := l.Handle(ctx, key)
	if suspect && ctx.Err() == nil {
		l.vigil.survived()
	}
	return err
}

// turn says how a key is handled now, and how long it has to wait for that.
func (v *vigil) turn(key string, now time.Time) (careful, suspect bool, rest time.Duration) {
	if !v.careful.Load() {
		return false, false, 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.careful.Load() || v.handled || key != v.past.Suspect.Key {
		return v.careful.Load(), false, 0
	}
	return true, true, v.past.rest(key) - now.Sub(v.began)
}

// survived notes that the suspect was handled in this life.
func (v *vigil) survived() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.handled = true
}

// look tries the records of a key one by one, each alone in flight.
func (l *Loop[R]) look(ctx context.Context, key string) error {
	err := l.Vet.Records(ctx, key, func(r R) error {
		if err := l.note(ctx, Flight{Key: key, Record: l.Vet.ID(r)}); err != nil {
			return err
		}
		l.Vet.Try(ctx, r)
		return nil
	})
	return errors.Join(err, l.note(ctx, Flight{Key: key}))
}

// admit reads a delivery's key, which is empty for a record that is set aside. In
// a careful life whose like ended with nothing in flight, that is in flight too.
func (l *Loop[R]) admit(ctx context.Context, item R) (key string, err error) {
	if l.Vet == nil {
		return l.Key(item), nil
	}
	id := l.Vet.ID(item)
	if l.Vet.Memory.Aside(id) {
		return "", nil
	}
	if !l.vigil.careful.Load() || !l.deep() {
		return l.Key(item), nil
	}
	l.vigil.alone.Lock()
	defer l.vigil.alone.Unlock()
	for err = l.note(ctx, Flight{Record: id}); err != nil; err = l.note(ctx, Flight{Record: id}) {
		l.fail("memory", err)
		select {
		case <-l.Clock.After(time.Second):
		case <-ctx.Done():
			return "", ctx.Err() // the next life reads it again
		}
	}
	defer l.landed(ctx)
	if l.Vet.Try != nil {
		l.Vet.Try(ctx, item)
	}
	return l.Key(item), nil
}

func (l *Loop[R]) deep() bool {
	l.vigil.mu.Lock()
	defer l.vigil.mu.Unlock()
	return l.vigil.past.Deep
}
