// Package aside remembers in the store what a consumer's process died of, and
// keeps the records that it is never to look at again. What is set aside is a
// dead letter; the record itself stays as it is, and who deletes the letter puts
// it back.
package aside

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Source is that of the dead letters of a consumer whose process died of them;
// their ids are those of the records.
func Source(consumer string) string { return consumer + ": killed by a record" }

// lives is the source of the letters that say how consumers' processes ended; the
// id is the consumer's name. They are no dead letters but the only thing beside
// the records that every store keeps.
const lives = "lives of consumers"

// Book implements consume.Memory for one consumer.
type Book struct {
	store    store.Store
	consumer string
	clock    clock.PassiveClock
	ids      atomic.Pointer[map[string]bool]
}

// Of is the book of a consumer.
func Of(s store.Store, consumer string, c clock.PassiveClock) *Book {
	b := &Book{store: s, consumer: consumer, clock: c}
	b.ids.Store(&map[string]bool{})
	return b
}

// Load implements consume.Memory.
func (b *Book) Load(ctx context.Context) (consume.Past, error) {
	letters, err := b.store.Letters(ctx, Source(b.consumer))
	if err != nil {
		return consume.Past{}, fmt.Errorf("reading what %s died of: %w", b.consumer, err)
	}
	ids := map[string]bool{}
	for _, l := range letters {
		ids[l.ID] = true
	}
	b.ids.Store(&ids)
	if letters, err = b.store.Letters(ctx, lives); err != nil {
		return consume.Past{}, fmt.Errorf("reading how %s ended: %w", b.consumer, err)
	}
	for _, l := range letters {
		if l.ID != b.consumer {
			continue
		}
		var p consume.Past
		if err := json.Unmarshal(l.Body, &p); err != nil {
			return consume.Past{}, fmt.Errorf("reading how %s ended: %w", b.consumer, err)
		}
		return p, nil
	}
	return consume.Past{}, nil
}

// Save implements consume.Memory.
func (b *Book) Save(ctx context.Context, p consume.Past) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding how %s ends: %w", b.consumer, err)
	}
	return b.store.Dead(ctx, store.DeadLetter{
		ID: b.consumer, Source: lives, Reason: "no dead letter: what the service remembers of its deaths", Body: body, At: b.clock.Now().UTC(),
	})
}

// SetAside implements consume.Memory.
func (b *Book) SetAside(ctx context.Context, f consume.Flight) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a dead letter: %w", err)
	}
	err = b.store.Dead(ctx, store.DeadLetter{
		ID: f.Record, Source: Source(b.consumer), Body: body, At: b.clock.Now().UTC(),
		Reason: fmt.Sprintf("%s died each time it looked at this record, alone (%s); it passes it over", b.consumer, f.Key),
	})
	if err != nil {
		return err
	}
	ids := maps.Clone(*b.ids.Load())
	ids[f.Record] = true
	b.ids.Store(&ids)
	return nil
}

// Aside implements consume.Memory.
func (b *Book) Aside(id string) bool { return (*b.ids.Load())[id] }

// Count implements consume.Memory.
func (b *Book) Count() int { return len(*b.ids.Load()) }

// IDs are those of the records that are set aside.
func (b *Book) IDs() []string { return slices.Sorted(maps.Keys(*b.ids.Load())) }

// Rest is the store without the records that are set aside: lists leave them out,
// and to Get they are not there.
func (b *Book) Rest() store.Store { return rest{b.store, b} }

type rest struct {
	store.Store
	book *Book
}

// List implements store.Store.
func (r rest) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	if r.book.Count() > 0 {
		q.Except = append(slices.Clip(q.Except), r.book.IDs()...)
	}
	return r.Store.List(ctx, q)
}

// Get implements store.Store.
func (r rest) Get(ctx context.Context, id string) (record.Record, error) {
	if r.book.Aside(id) {
		return record.Record{}, fmt.Errorf("reading record %q, which is set aside: %w", id, store.ErrNotFound)
	}
	return r.Store.Get(ctx, id)
}

// Vetting is how a loop over records uses the book: records are those that the
// handler of a key reads, page by page, and try computes what it computes of one.
func (b *Book) Vetting(of func(key string) record.Selector, try func(context.Context, record.Record)) *consume.Vetting[record.Record] {
	v := &consume.Vetting[record.Record]{Memory: b, ID: func(r record.Record) string { return r.ID }, Try: try}
	if of != nil {
		v.Records = func(ctx context.Context, key string, each func(record.Record) error) error {
			q := store.Query{Selector: of(key), Limit: page}
			return store.Pages(ctx, b.Rest(), q, func(records []record.Record) error {
				for _, r := range records {
					if err := each(r); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return v
}

// page is how many records one list brings.
const page = 100
