package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// This part of the package remembers in the store what a consumer's process died of, and
// keeps the records that it must never handle again, the dead letters. The record itself
// stays as it is; deleting the letter puts it back.

// PoisonRecordSource is that of the dead letters of a consumer whose process died of them;
// their ids are those of the records.
func PoisonRecordSource(consumer string) string { return consumer + ": killed by a record" }

// runsSource is the source of the letters that record how consumers' processes ended. They
// are no dead letters but the only thing beside the records that every store keeps.
const runsSource = "lives of consumers"

// accounts is how many of its lives a consumer has a letter of. Each life writes
// its own alone, so that a leader that was frozen, and does not know yet that
// another one leads, changes nothing of its successor's account.
const accounts = 16

// account is the body of such a letter, whose id is the consumer's name and the
// life's number modulo accounts.
type account struct {
	// Run numbers the starts of a consumer in this store, in all replicas.
	Run  int64          `json:"life"`
	Past crashloop.Past `json:"past"`

	at time.Time // of the letter
}

// CrashMemory implements consume.Memory for one consumer, in one life of its process.
type CrashMemory struct {
	store    store.Store
	consumer string
	clock    clock.PassiveClock
	run      atomic.Int64
	ids      atomic.Pointer[map[string]bool]
}

// OpenCrashMemory is the register of a consumer.
func OpenCrashMemory(s store.Store, consumer string, c clock.PassiveClock) *CrashMemory {
	r := &CrashMemory{store: s, consumer: consumer, clock: c}
	r.ids.Store(&map[string]bool{})
	return r
}

// Load implements consume.Memory.
func (c *CrashMemory) Load(ctx context.Context) (crashloop.Past, error) {
	deadLetters, err := c.store.DeadLetters(ctx, PoisonRecordSource(c.consumer))
	if err != nil {
		return crashloop.Past{}, fmt.Errorf("reading the dead letters of %s: %w", c.consumer, err)
	}
	ids := map[string]bool{}
	for _, l := range deadLetters {
		ids[l.ID] = true
	}
	c.ids.Store(&ids)
	known, err := newestRuns(ctx, c.store, func(consumer string) bool { return consumer == c.consumer })
	if err != nil {
		return crashloop.Past{}, fmt.Errorf("reading the crash history of %s: %w", c.consumer, err)
	}
	last := known[c.consumer]
	c.run.Store(last.Run + 1)
	return last.Past, nil
}

// Suspect is what a consumer's process handled when it died, again and again. Its key is
// not passed over yet; others only go first.
type Suspect struct {
	Consumer string
	// Key is mostly a node's name; Crashes are those in a row with it in flight.
	Key     string
	Crashes int
	// At is when this was last written.
	At time.Time
}

// DeadLetters reads dead letters.
type DeadLetters interface {
	DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error)
}

// Suspects are those of the consumers' newest lives, by the consumers' names.
func Suspects(ctx context.Context, s DeadLetters) (out []Suspect, err error) {
	newest, err := newestRuns(ctx, s, func(string) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("reading the crash history of the services: %w", err)
	}
	for _, consumer := range slices.Sorted(maps.Keys(newest)) {
		one := newest[consumer]
		if p := one.Past; p.Suspect.Key != "" {
			out = append(out, Suspect{consumer, p.Suspect.Key, p.KeyCrashes, one.at})
		}
	}
	return out, nil
}

// newestRuns are the accounts of the newest lives of some consumers.
func newestRuns(ctx context.Context, s DeadLetters, of func(consumer string) bool) (map[string]account, error) {
	deadLetters, err := s.DeadLetters(ctx, runsSource)
	if err != nil {
		return nil, err
	}
	newest := map[string]account{}
	for _, l := range deadLetters {
		consumer := path.Dir(l.ID)
		if !of(consumer) {
			continue
		}
		one := account{at: l.At}
		if err := json.Unmarshal(l.Body, &one); err != nil {
			return nil, fmt.Errorf("dead letter %s: %w", l.ID, err)
		}
		if one.Run > newest[consumer].Run {
			newest[consumer] = one
		}
	}
	return newest, nil
}

// Save implements consume.Memory; Load comes before it.
func (c *CrashMemory) Save(ctx context.Context, p crashloop.Past) error {
	run := c.run.Load()
	body, err := json.Marshal(account{Run: run, Past: p})
	if err != nil {
		return fmt.Errorf("encoding the crash history of %s: %w", c.consumer, err)
	}
	return c.store.Dead(ctx, store.DeadLetter{
		ID: fmt.Sprintf("%s/%d", c.consumer, run%accounts), Source: runsSource, Body: body, At: c.clock.Now().UTC(),
		Reason: "crash history of the service, not a dead letter",
	})
}

// MoveToDeadLetters implements consume.Memory.
func (c *CrashMemory) MoveToDeadLetters(ctx context.Context, f crashloop.Work) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a dead letter: %w", err)
	}
	err = c.store.Dead(ctx, store.DeadLetter{
		ID: f.Record, Source: PoisonRecordSource(c.consumer), Body: body, At: c.clock.Now().UTC(),
		Reason: fmt.Sprintf("%s crashed at each isolated attempt to handle this record (%s), the record is skipped", c.consumer, f.Key),
	})
	if err != nil {
		return err
	}
	ids := maps.Clone(*c.ids.Load())
	ids[f.Record] = true
	c.ids.Store(&ids)
	return nil
}

// IsDeadLetter implements consume.Memory.
func (c *CrashMemory) IsDeadLetter(id string) bool { return (*c.ids.Load())[id] }

// Count implements consume.Memory.
func (c *CrashMemory) Count() int { return len(*c.ids.Load()) }

// IDs returns the ids of the records that are dead-lettered.
func (c *CrashMemory) IDs() []string { return slices.Sorted(maps.Keys(*c.ids.Load())) }

// WithoutDeadLetters is the store without the records that are dead-lettered: lists leave
// them out, and Get does not find them.
func (c *CrashMemory) WithoutDeadLetters() store.Store { return filteredStore{c.store, c} }

type filteredStore struct {
	store.Store
	register *CrashMemory
}

// List implements store.Store.
func (f filteredStore) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	if f.register.Count() > 0 {
		q.Except = append(slices.Clip(q.Except), f.register.IDs()...)
	}
	return f.Store.List(ctx, q)
}

// Get implements store.Store.
func (f filteredStore) Get(ctx context.Context, id string) (record.Record, error) {
	if f.register.IsDeadLetter(id) {
		return record.Record{}, fmt.Errorf("reading the dead-lettered record %q: %w", id, store.ErrNotFound)
	}
	return f.Store.Get(ctx, id)
}

// Vetting is how a loop over records uses the register: records are those that the
// handler of a key reads, page by page, and try computes what it computes of one.
func (c *CrashMemory) Vetting(of func(key string) record.Selector, try func(context.Context, record.Record)) *consume.Vetting[record.Record] {
	v := &consume.Vetting[record.Record]{Memory: c, ID: func(one record.Record) string { return one.ID }, Try: try}
	if of != nil {
		v.Records = func(ctx context.Context, key string, each func(record.Record) error) error {
			return store.Each(ctx, c.WithoutDeadLetters(), store.Query{Selector: of(key), Limit: vettingPage}, each)
		}
	}
	return v
}

// vettingPage is how many records one list brings.
const vettingPage = 100
