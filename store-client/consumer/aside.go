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
// keeps the records that it is never to look at again. What is set aside is a dead letter;
// the record itself stays as it is, and who deletes the letter puts it back.

// AsideSource is that of the dead letters of a consumer whose process died of them;
// their ids are those of the records.
func AsideSource(consumer string) string { return consumer + ": killed by a record" }

// lives is the source of the letters that say how consumers' processes ended. They
// are no dead letters but the only thing beside the records that every store keeps.
const lives = "lives of consumers"

// accounts is how many of its lives a consumer has a letter of. Each life writes
// its own alone, so that a leader that was frozen, and does not know yet that
// another one leads, changes nothing of its successor's account.
const accounts = 16

// account is the body of such a letter, whose id is the consumer's name and the
// life's number modulo accounts.
type account struct {
	// Life numbers the starts of a consumer in this store, in all replicas.
	Life int64          `json:"life"`
	Past crashloop.Past `json:"past"`

	at time.Time // of the letter
}

// Aside implements consume.Memory for one consumer, in one life of its process.
type Aside struct {
	store    store.Store
	consumer string
	clock    clock.PassiveClock
	life     atomic.Int64
	ids      atomic.Pointer[map[string]bool]
}

// OpenAside is the register of a consumer.
func OpenAside(s store.Store, consumer string, c clock.PassiveClock) *Aside {
	r := &Aside{store: s, consumer: consumer, clock: c}
	r.ids.Store(&map[string]bool{})
	return r
}

// Load implements consume.Memory.
func (a *Aside) Load(ctx context.Context) (crashloop.Past, error) {
	deadLetters, err := a.store.DeadLetters(ctx, AsideSource(a.consumer))
	if err != nil {
		return crashloop.Past{}, fmt.Errorf("reading the dead letters of %s: %w", a.consumer, err)
	}
	ids := map[string]bool{}
	for _, l := range deadLetters {
		ids[l.ID] = true
	}
	a.ids.Store(&ids)
	known, err := newestLives(ctx, a.store, func(consumer string) bool { return consumer == a.consumer })
	if err != nil {
		return crashloop.Past{}, fmt.Errorf("reading the crash history of %s: %w", a.consumer, err)
	}
	last := known[a.consumer]
	a.life.Store(last.Life + 1)
	return last.Past, nil
}

// Suspect is what a consumer's process handled when it died, again and again; what
// it is told apart by is passed over by nobody yet, others only go first.
type Suspect struct {
	Consumer string
	// Key is mostly a node's name; Deaths are those in a row with it in flight.
	Key    string
	Deaths int
	// At is when this was last written.
	At time.Time
}

// DeadLetters reads dead letters.
type DeadLetters interface {
	DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error)
}

// Suspects are those of the consumers' newest lives, by the consumers' names.
func Suspects(ctx context.Context, s DeadLetters) (out []Suspect, err error) {
	newest, err := newestLives(ctx, s, func(string) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("reading the crash history of the services: %w", err)
	}
	for _, consumer := range slices.Sorted(maps.Keys(newest)) {
		one := newest[consumer]
		if p := one.Past; p.Suspect.Key != "" {
			out = append(out, Suspect{consumer, p.Suspect.Key, p.KeyDeaths, one.at})
		}
	}
	return out, nil
}

// newestLives are the accounts of the newest lives of some consumers.
func newestLives(ctx context.Context, s DeadLetters, of func(consumer string) bool) (map[string]account, error) {
	deadLetters, err := s.DeadLetters(ctx, lives)
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
		if one.Life > newest[consumer].Life {
			newest[consumer] = one
		}
	}
	return newest, nil
}

// Save implements consume.Memory; Load comes before it.
func (a *Aside) Save(ctx context.Context, p crashloop.Past) error {
	life := a.life.Load()
	body, err := json.Marshal(account{Life: life, Past: p})
	if err != nil {
		return fmt.Errorf("encoding the crash history of %s: %w", a.consumer, err)
	}
	return a.store.Dead(ctx, store.DeadLetter{
		ID: fmt.Sprintf("%s/%d", a.consumer, life%accounts), Source: lives, Body: body, At: a.clock.Now().UTC(),
		Reason: "crash history of the service, not a dead letter",
	})
}

// SetAside implements consume.Memory.
func (a *Aside) SetAside(ctx context.Context, f crashloop.Work) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a dead letter: %w", err)
	}
	err = a.store.Dead(ctx, store.DeadLetter{
		ID: f.Record, Source: AsideSource(a.consumer), Body: body, At: a.clock.Now().UTC(),
		Reason: fmt.Sprintf("%s crashed at each isolated attempt to handle this record (%s), the record is skipped", a.consumer, f.Key),
	})
	if err != nil {
		return err
	}
	ids := maps.Clone(*a.ids.Load())
	ids[f.Record] = true
	a.ids.Store(&ids)
	return nil
}

// Aside implements consume.Memory.
func (a *Aside) Aside(id string) bool { return (*a.ids.Load())[id] }

// Count implements consume.Memory.
func (a *Aside) Count() int { return len(*a.ids.Load()) }

// IDs are those of the records that are set aside.
func (a *Aside) IDs() []string { return slices.Sorted(maps.Keys(*a.ids.Load())) }

// Rest is the store without the records that are set aside: lists leave them out,
// and to Get they are not there.
func (a *Aside) Rest() store.Store { return rest{a.store, a} }

type rest struct {
	store.Store
	register *Aside
}

// List implements store.Store.
func (r rest) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	if r.register.Count() > 0 {
		q.Except = append(slices.Clip(q.Except), r.register.IDs()...)
	}
	return r.Store.List(ctx, q)
}

// Get implements store.Store.
func (r rest) Get(ctx context.Context, id string) (record.Record, error) {
	if r.register.Aside(id) {
		return record.Record{}, fmt.Errorf("reading the dead-lettered record %q: %w", id, store.ErrNotFound)
	}
	return r.Store.Get(ctx, id)
}

// Vetting is how a loop over records uses the register: records are those that the
// handler of a key reads, page by page, and try computes what it computes of one.
func (a *Aside) Vetting(of func(key string) record.Selector, try func(context.Context, record.Record)) *consume.Vetting[record.Record] {
	v := &consume.Vetting[record.Record]{Memory: a, ID: func(one record.Record) string { return one.ID }, Try: try}
	if of != nil {
		v.Records = func(ctx context.Context, key string, each func(record.Record) error) error {
			return store.Each(ctx, a.Rest(), store.Query{Selector: of(key), Limit: vettingPage}, each)
		}
	}
	return v
}

// vettingPage is how many records one list brings.
const vettingPage = 100
