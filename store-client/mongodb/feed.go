package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// await is how long the server holds a question for changes; a longer wait
	// is another question.
	await = time.Second
	// restEvery is how often a feed with nothing to deliver stores the stream's
	// newest token, so that it never falls out of the server's history.
	restEvery = time.Minute
	// pageRecords bounds what one read of a scan holds in memory.
	pageRecords = 200
	// overlap is how much older than the change stream a record's reservation
	// of its place may be: the bound of an append, with room.
	overlap = 2 * provider.OperationTimeout
)

var (
	errClosed = errors.New("feed is closed")
	// errEnded: nothing more will come of a stream whose cursor is gone, although
	// the server tells of no error.
	errEnded = errors.New("the server ended the change stream: the collection was dropped, renamed or restored; reading again")
)

// feed implements store.Feed: first a scan of what was stored before the
// change stream was opened, where the consumer has not got it, then the
// stream. Next is for one goroutine; Commit may be called from others.
type feed struct {
	s        *Store
	consumer string
	selector record.Selector
	kind     kind

	closed chan struct{}
	once   sync.Once

	// at is how far was read; buffer what was read by a scan and not delivered.
	at     position
	buffer []stored
	// stream is nil while it has to be opened again; ended says that the server
	// ended the last one.
	stream *mongo.ChangeStream
	ended  bool
	// twice are records that the scan delivered and the stream may bear too.
	twice map[string]bool
	// broken was read and is not kept aside yet; nil most of the time.
	broken *provider.Document
	// rested is when a token was last stored without a record.
	rested time.Time

	mu                   sync.Mutex
	delivered, committed string
}

// Feed implements store.Store.
func (s *Store) Feed(ctx context.Context, consumer string, selector record.Selector) (store.Feed, error) {
	if consumer == "" {
		return nil, errors.New("opening a feed: the consumer has no name")
	}
	f := &feed{s: s, consumer: consumer, selector: selector, kind: kindOf(selector), closed: make(chan struct{}), rested: s.Clock.Now()}
	if err := f.resume(ctx); err != nil {
		return nil, fmt.Errorf("opening the feed of %s: %w", consumer, err)
	}
	return f, nil
}

func kindOf(selector record.Selector) kind {
	if selector.InsertsOnly {
		return byInsert
	}
	return byChange
}

// Close implements store.Feed.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Next implements store.Feed. An error closes the stream; the next call opens
// it again behind what was delivered.
func (f *feed) Next(ctx context.Context) (record.Record, string, error) {
	for {
		select {
		case <-f.closed:
			f.hangUp()
			return record.Record{}, "", errClosed
		default:
		}
		if err := f.bury(ctx); err != nil {
			return record.Record{}, "", fmt.Errorf("reading the feed of %s: %w", f.consumer, err)
		}
		doc, ok, err := f.next(ctx)
		if err != nil {
			f.hangUp()
			return record.Record{}, "", fmt.Errorf("reading the feed of %s: %w", f.consumer, err)
		}
		if !ok {
			continue
		}
		r, d := doc.take()
		if d.Why != nil {
			f.broken = &d
			continue
		}
		return r, f.deliver(doc), nil
	}
}

func (f *feed) deliver(doc stored) string {
	f.s.Metrics.Lag.WithLabelValues(f.consumer).Set(max(0, f.s.Clock.Since(f.time(doc)).Seconds()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = f.at.String()
	return f.delivered
}

// time is when what the feed follows happened to a record.
func (f *feed) time(doc stored) time.Time {
	if f.kind == byInsert {
		return doc.StoredAt
	}
	return doc.ChangedAt
}

// next is one document, or none yet.
func (f *feed) next(ctx context.Context) (stored, bool, error) {
	if f.stream == nil {
		if err := f.open(ctx); err != nil {
			return stored{}, false, err
		}
	}
	if f.at.Reading != nil {
		return f.scan(ctx)
	}
	return f.follow(ctx)
}

// scan takes the next document of the scan, reading a page when it must.
func (f *feed) scan(ctx context.Context) (stored, bool, error) {
	if len(f.buffer) == 0 {
		page, err := f.page(ctx)
		if err != nil {
			return stored{}, false, fmt.Errorf("reading a page: %w", err)
		}
		if len(page) == 0 {
			f.at.Reading = nil
			return stored{}, false, nil
		}
		f.buffer = page
	}
	doc := f.buffer[0]
	f.buffer = f.buffer[1:]
	read := *f.at.Reading
	read.After = doc.Append
	f.at.Reading = &read
	// Pages go by append order, so the mark of the whole scan is the time of
	// the insertion.
	f.step(doc, doc.StoredAt)
	if f.kind == byInsert && f.s.Clock.Since(doc.StoredAt) < overlap {
		f.twice[doc.ID] = true
	}
	return doc, true, nil
}

// step moves the position behind a document.
func (f *feed) step(doc stored, mark time.Time) {
	f.at.Count++
	f.at.Head, f.at.Mark = max(f.at.Head, doc.Append), mark.UnixMicro()
}

func (f *feed) page(ctx context.Context) ([]stored, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	return all[stored](ctx, f.s.events(), unread(f.selector, f.kind, *f.at.Reading),
		options.Find().SetProjection(whole()).SetSort(bson.D{{Key: "append", Value: 1}}).SetLimit(pageRecords))
}

// unread selects what a scan still has to read.
func unread(selector record.Selector, k kind, r reading) bson.D {
	where := bson.D{{Key: "append", Value: bson.D{{Key: "$gt", Value: r.After}, {Key: "$lte", Value: r.Until}}}}
	and := bson.A{where, filter(selector, "")}
	if r.Again {
		or := bson.A{bson.D{{Key: "isfinished", Value: false}}}
		if r.Since != nil {
			field := "changedat"
			if k == byInsert {
				field = "storedat"
			}
			or = append(or, bson.D{{Key: field, Value: bson.D{{Key: "$gte", Value: time.UnixMicro(*r.Since)}}}})
		}
		and = append(and, bson.D{{Key: "$or", Value: or}})
	}
	return bson.D{{Key: "$and", Value: and}}
}

// change is an event of the stream, as Pipeline projects it.
type change struct {
	Token bson.Raw `json:"_id"`
	Doc   stored   `json:"fullDocument"`
}

// follow asks the stream once; it waits for at most the await time.
func (f *feed) follow(ctx context.Context) (stored, bool, error) {
	if !f.stream.TryNext(ctx) {
		if err := f.stream.Err(); err != nil {
			return stored{}, false, err
		}
		if f.stream.ID() == 0 {
			f.ended = true
			return stored{}, false, errEnded
		}
		return stored{}, false, f.rest(ctx)
	}
	c, err := f.s.change(f.stream)
	if err != nil {
		return stored{}, false, err
	}
	token, err := tokenOf(c.Token)
	if err != nil {
		return stored{}, false, err
	}
	f.at.Token = token
	if f.twice[c.Doc.ID] {
		delete(f.twice, c.Doc.ID)
		return stored{}, false, nil
	}
	f.step(c.Doc, f.time(c.Doc))
	return c.Doc, true, nil
}

// rest keeps the stored token young while nothing happens that the consumer
// looks for.
func (f *feed) rest(ctx context.Context) error {
	f.s.Metrics.Lag.WithLabelValues(f.consumer).Set(0)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.mu.Lock()
	settled := f.delivered == f.committed
	f.mu.Unlock()
	if !settled || f.s.Clock.Since(f.rested) < restEvery {
		return nil
	}
	f.rested = f.s.Clock.Now()
	f.twice = map[string]bool{}
	token, err := tokenOf(f.stream.ResumeToken())
	if err != nil {
		return err
	}
	f.at.Token = token
	return f.store(ctx, f.at)
}

// bury keeps a broken document as a dead letter, counts and passes it; nothing
// behind it is delivered before.
func (f *feed) bury(ctx context.Context) error {
	if f.broken == nil {
		return nil
	}
	letter := f.broken.Letter("feed of " + f.consumer)
	letter.At = f.s.Clock.Now()
	if err := f.s.Dead(ctx, letter); err != nil {
		return err
	}
	f.broken = nil
	f.s.Metrics.Undecodable.WithLabelValues(f.consumer).Inc()
	f.s.Log.Error("passing a record that cannot be decoded", "consumer", f.consumer, "record", letter.ID, "error", letter.Reason)
	return nil
}

// hangUp closes the stream; what was delivered stays delivered.
func (f *feed) hangUp() {
	if f.stream == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = f.stream.Close(ctx) // its connection is broken or does not matter any more
	f.stream = nil
}

// lostCodes are the server's refusals of a token: FailedToParse,
// InvalidResumeToken, ChangeStreamFatalError and ChangeStreamHistoryLost.
var lostCodes = []int{9, 260, 280, 286}

// refused says whether the server refuses the token itself.
func refused(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(lostCodes, server.HasErrorCode)
}

// Commit implements store.Feed; it never goes backwards.
func (f *feed) Commit(ctx context.Context, text string) error {
	p, err := parsePosition(text)
	if err == nil && p.Kind != f.kind {
		err = fmt.Errorf("%w: it follows %s", errPosition, p.Kind)
	}
	if err == nil {
		err = f.store(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("committing the position of %s: %w", f.consumer, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.committed = text
	return nil
}
