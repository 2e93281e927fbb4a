package provider

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Bounds of the dead letter of a document that cannot be decoded, in bytes: who
// made the document must not keep the letter from being kept.
const (
	maxReason = 1 << 10
	maxBody   = 1 << 20
	// deadLettersPerPage is how many of them one page makes.
	deadLettersPerPage = 16
	// maxReported bounds the documents that a process reports; further ones are left out
	// without a message of their own.
	maxReported = 1 << 16
)

// lists is the consumer in the metric of what lists came across.
const lists = "list"

// Document is a stored document as it is, and why it cannot be decoded.
type Document struct {
	ID   string
	Body []byte
	Why  error
}

// DeadLetter is the document as a dead letter of a source, without its time.
func (d Document) DeadLetter(source string) store.DeadLetter {
	return store.DeadLetter{
		ID: cut(d.ID, maxID), Source: source, Reason: cut(d.Why.Error(), maxReason), Body: d.Body[:min(len(d.Body), maxBody)],
	}
}

func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "\uFFFD") }

// Undecodable receives the documents that lists leave out because they cannot be
// decoded.
type Undecodable struct {
	// Keep stores a dead letter; nil where nothing can be written.
	Keep    func(context.Context, store.DeadLetter) error
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics

	mu       sync.Mutex
	reported map[string]bool
}

// List is store.Store's List for every provider: read runs the query for at most
// so many documents, 0 being no bound, until the page is full. Documents that
// cannot be decoded are left out, with a dead letter for each. A page that they
// made short is read again, longer, so that they take nobody's place in it.
func (u *Undecodable) List(ctx context.Context, q store.Query, read func(ctx context.Context, limit int, page *Page) error) ([]record.Record, error) {
	for limit := q.Limit; ; {
		page := &Page{query: q, of: u}
		err := read(ctx, limit, page)
		if err == nil {
			err = u.keep(ctx, page.broken)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", q.Selector.Name, err)
		}
		if page.moreUndecodable {
			continue
		}
		if limit > 0 && page.read == limit && !page.Full() {
			limit = q.Limit + 2*(page.read-len(page.records))
			continue
		}
		if q.More != nil {
			*q.More = page.Full()
		}
		return page.records, nil
	}
}

// keep makes dead letters of documents, counts and names them.
func (u *Undecodable) keep(ctx context.Context, documents []Document) error {
	for _, d := range documents {
		deadLetter := d.DeadLetter(store.Undecodable)
		deadLetter.At = u.Clock.Now()
		if u.Keep != nil {
			if err := u.Keep(ctx, deadLetter); err != nil {
				return fmt.Errorf("skipping record %q, %w: %w", deadLetter.ID, d.Why, err)
			}
		}
		u.report(d.ID)
		u.Metrics.Undecodable.WithLabelValues(lists).Inc()
		u.Log.Error("undecodable record skipped in lists", "record", deadLetter.ID, "error", deadLetter.Reason)
	}
	return nil
}

func (u *Undecodable) report(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reported == nil {
		u.reported = map[string]bool{}
	}
	u.reported[id] = true
}

func (u *Undecodable) isReported(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reported[id] || len(u.reported) >= maxReported
}

// Page is what one query of a list has read.
type Page struct {
	query       store.Query
	of          *Undecodable
	records     []record.Record
	read, bytes int
	broken      []Document
	// moreUndecodable is true if there are further undecodable documents.
	moreUndecodable bool
}

// Full reports whether the page takes nothing more.
func (p *Page) Full() bool {
	return p.query.More != nil && p.bytes >= store.PageBytes || p.query.Limit > 0 && len(p.records) == p.query.Limit
}

// Add takes the next document: the record that it is, or why it is none.
func (p *Page) Add(r record.Record, d Document) {
	p.read++
	switch {
	case d.Why == nil:
		p.records, p.bytes = append(p.records, r), p.bytes+len(d.Body)
	case p.of.isReported(d.ID):
	case len(p.broken) == deadLettersPerPage:
		p.moreUndecodable = true
	default:
		d.Body = slices.Clone(d.Body[:min(len(d.Body), maxBody)])
		p.broken = append(p.broken, d)
	}
}
