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
	// pageRecords bounds what one read of a scan holds in memory.
	pageRecords = 200
	// overlap is how much earlier than a change stream was opened a time may lie that was
	// taken for a change which the stream bears: the bound of a write, with a margin for a
	// clock that differs from the server's.
	overlap = 2 * provider.OperationTimeout
)

var (
	errClosed = errors.New("change feed is closed")
	// errEnded: nothing more will come of a stream whose cursor is gone, although
	// the server reports no error.
	errEnded = errors.New("the server ended the change stream: the collection was dropped, renamed or restored, reading again")
)

// feed implements store.Feed: first a scan of what was stored before the
// change stream was opened, where the consumer has not got it, then the
// stream. Next is for one goroutine; Commit may be called from others.
type feed struct {
	provider.Consumer[position]
	s        *Store
	selector record.Selector

	closed chan struct{}
	once   sync.Once

	// at is how far was read; buffer what was read by a scan and not delivered.
	at     position
	buffer []stored
	// stream is nil while it has to be opened again; ended is true if the server ended the
	// last one.
	stream *mongo.ChangeStream
	ended  bool
	// scanned are records that the scan delivered, by id, of which the stream may
	// bear what they were until then.
	scanned map[string]version
	// broken was read and is not a dead letter yet; nil most of the time.
	broken *provider.Document
}

// Feed implements store.Store.
func (s *Store) Feed(ctx context.Context, consumer string, selector record.Selector) (store.Feed, error) {
	if consumer == "" {
		return nil, errors.New("opening a change feed: the consumer has no name")
	}
	f := newFeed(s, consumer, selector)
	if err := f.resume(ctx); err != nil {
		return nil, fmt.Errorf("opening the change feed of %s: %w", consumer, err)
	}
	return f, nil
}

// newFeed is a feed that is not opened.
func newFeed(s *Store, consumer string, selector record.Selector) *feed {
	return &feed{
		Consumer: provider.Consumer[position]{
			Name: consumer, Kind: provider.KindOf(selector), Lines: lines{s}, Clock: s.Clock, Log: s.Log, Metrics: s.Metrics,
		},
		s: s, selector: selector, closed: make(chan struct{}),
	}
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
		if f.broken != nil {
			// Nothing behind it is delivered before it is kept as a dead letter.
			if err := f.Bury(ctx, *f.broken); err != nil {
				return record.Record{}, "", fmt.Errorf("reading the change feed of %s: %w", f.Name, err)
			}
			f.broken = nil
		}
		doc, ok, err := f.next(ctx)
		if err != nil {
			f.hangUp()
			return record.Record{}, "", fmt.Errorf("reading the change feed of %s: %w", f.Name, err)
		}
		if !ok {
			continue
		}
		r, d := doc.take()
		if d.Why != nil {
			f.broken = &d
			continue
		}
		return r, f.Deliver(f.at, f.time(doc)), nil
	}
}

// time is when what the feed follows happened to a record.
func (f *feed) time(doc stored) time.Time {
	if f.Kind == provider.Inserts {
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
	if f.at.Scan != nil {
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
			f.at.Scan = nil
			return stored{}, false, nil
		}
		f.buffer = page
	}
	doc := f.buffer[0]
	f.buffer = f.buffer[1:]
	read := *f.at.Scan
	read.After = doc.Append
	f.at.Scan = &read
	// Pages go by append order, so the mark of the whole scan is the time of
	// the insertion.
	f.step(doc, doc.StoredAt)
	if f.time(doc).Add(overlap).UnixMicro() >= read.Opened {
		f.scanned[doc.ID] = versionOf(doc)
	}
	return doc, true, nil
}

// version is a document at one time: which insertion, and how often it was
// updated since.
type version struct {
	append, revision int64
	storedAt         time.Time
}

func versionOf(doc stored) version { return version{doc.Append, doc.Revision, doc.StoredAt} }

// past reports whether the scan delivered a document as it is or as it became later: the
// stream bears each change as it was written, from before the scan read on. The entry ends
// where the stream has caught up with the scan: what is older and comes then was put back,
// for example from a backup, and is news. So is another insertion under the same id.
func (f *feed) past(doc stored) bool {
	of, ok := f.scanned[doc.ID]
	if !ok {
		return false
	}
	is := versionOf(doc)
	last := f.Kind == provider.Inserts || is.revision >= of.revision
	past := is.append == of.append && is.storedAt.Equal(of.storedAt) && is.revision <= of.revision
	if last || !past {
		delete(f.scanned, doc.ID)
	}
	return past
}

// step moves the position behind a document.
func (f *feed) step(doc stored, mark time.Time) {
	f.at.Count++
	f.at.Head, f.at.Mark = max(f.at.Head, doc.Append), mark.UnixMicro()
}

func (f *feed) page(ctx context.Context) ([]stored, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	return all[stored](ctx, f.s.events(), unread(f.selector, f.Kind, *f.at.Scan),
		options.Find().SetProjection(projection()).SetSort(bson.D{{Key: "append", Value: 1}}).SetLimit(pageRecords))
}

// unread selects what a scan still has to read.
func unread(selector record.Selector, k provider.Kind, r scan) bson.D {
	where := bson.D{{Key: "append", Value: bson.D{{Key: "$gt", Value: r.After}, {Key: "$lte", Value: r.Until}}}}
	and := bson.A{where, filter(selector, "")}
	if r.Again {
		or := bson.A{bson.D{{Key: "isfinished", Value: false}}}
		if since, ok := r.SinceTime(); ok {
			field := "changedat"
			if k == provider.Inserts {
				field = "storedat"
			}
			or = append(or, bson.D{{Key: field, Value: bson.D{{Key: "$gte", Value: since}}}})
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
		return stored{}, false, f.refreshToken(ctx)
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
	if f.past(c.Doc) {
		return stored{}, false, nil
	}
	f.step(c.Doc, f.time(c.Doc))
	return c.Doc, true, nil
}

// refreshToken keeps the stored token young while nothing happens that the consumer
// looks for.
func (f *feed) refreshToken(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !f.Idle() {
		return nil
	}
	f.scanned = map[string]version{}
	token, err := tokenOf(f.stream.ResumeToken())
	if err != nil {
		return err
	}
	f.at.Token = token
	return f.Store(ctx, f.at)
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

// refused reports whether the server refuses the token itself.
func refused(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(lostCodes, server.HasErrorCode)
}
