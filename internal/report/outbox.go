// Package report carries a monitor's health events to the platform connector
// of its node: a bounded outbox on disk that an event enters together with the
// place it was read from, and a publisher that empties it in order.
//
// An event gets its id, its seq and its epoch once, on entering the outbox, and
// leaves it only after the connector has acknowledged it. A missing connector
// therefore costs nothing, and a crash at any point repeats an event under the
// id it had before.
package report

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Errors of Tx.Append.
var (
	// ErrFull: the outbox has reached its bound. The owner reads its source no
	// further until Changed reports that something left.
	ErrFull = errors.New("outbox is full")
	// ErrTooLarge: the event alone exceeds MaxEventBytes; it can never be sent.
	ErrTooLarge = errors.New("event is too large for the outbox")
	// ErrInvalid: the event cannot be encoded, for example invalid UTF-8.
	ErrInvalid = errors.New("event cannot be encoded")
)

// MaxEventBytes bounds one encoded event; a batch is not larger either.
const MaxEventBytes = 1 << 20

// maxDead bounds the dead letters kept for a look; beyond it the oldest goes.
const maxDead = 1000

var (
	bucketMeta  = []byte("meta")
	bucketQueue = []byte("queue")
	bucketDead  = []byte("dead")
	bucketOwner = []byte("owner")
	keyEpoch    = []byte("epoch")
	keySeq      = []byte("seq")
	keyRuns     = []byte("runs")
	keyBegan    = []byte("began") // the last seq given before this run
)

// Origin is what Open found.
type Origin string

// Origins of an outbox.
const (
	// Created: there was no file. What the owner knew before, if anything, is gone.
	Created Origin = "created"
	// Resumed: the file was there and is readable.
	Resumed Origin = "resumed"
	// Replaced: the file was there and unreadable; it was renamed.
	Replaced Origin = "replaced"
)

// Options bound an outbox; the zero value of a field is its default.
type Options struct {
	// MaxBytes bounds the encoded events, default 64 MiB.
	MaxBytes int64
	// MaxEntries bounds their number, default 100,000.
	MaxEntries int
	// Clock is the source of the time at which an event entered, default the real one.
	Clock clock.PassiveClock
	// NewID gives an event its id, default UUIDv7.
	NewID func() (string, error)
}

// Outbox is a durable queue of events with its owner's notes beside it. It is
// one bbolt file, because an event and the source position behind it must
// become durable in one step: bbolt's transaction is that step, and at a few
// faults a minute its two fsyncs do not matter.
type Outbox struct {
	db     *bbolt.DB
	o      Options
	origin Origin
	epoch  string
	runs   string

	writing sync.Mutex // held over a transaction and the stats that follow from it
	mu      sync.Mutex
	stats   Stats
	changed chan struct{}
}

// Stats is what an outbox holds.
type Stats struct {
	Entries int
	Bytes   int64
	// FirstSeq is the seq of the oldest entry, LastSeq the last one ever given;
	// FirstSeq is 0 when the outbox is empty.
	FirstSeq, LastSeq uint64
	// Oldest is when the oldest entry entered; zero when the outbox is empty.
	Oldest time.Time
	// Dead is the number of dead letters kept.
	Dead int
	// Refused counts appends that found the outbox full since Open.
	Refused int64
}

// Epoch names this outbox: seq is comparable only within it.
func (o *Outbox) Epoch() string { return o.epoch }

// Runs names the run that began with Open, and those before it: across runs seq
// is comparable only if one led to the other, see record.NextRun.
func (o *Outbox) Runs() string { return o.runs }

// Origin reports whether the outbox continues an older one.
func (o *Outbox) Origin() Origin { return o.origin }

// Close releases the file.
func (o *Outbox) Close() error {
	if err := o.db.Close(); err != nil {
		return fmt.Errorf("closing the outbox: %w", err)
	}
	return nil
}

// Stats returns what the outbox holds now.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// Changed is closed at the next change of the outbox's content. Take it before
// looking, so that no change falls between.
func (o *Outbox) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// Tx is one atomic change: events, and the notes that belong to them.
type Tx struct {
	tx    *bbolt.Tx
	b     *Outbox
	stats Stats
}

// Write runs change in one transaction: all of it is on the disk when Write
// returns nil, none of it otherwise.
func (o *Outbox) Write(change func(tx *Tx) error) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	var stats Stats
	err := o.db.Update(func(raw *bbolt.Tx) error {
		tx := &Tx{tx: raw, b: o, stats: o.Stats()}
		err := change(tx)
		stats = tx.stats
		return err
	})
	if err != nil {
		o.mu.Lock()
		o.stats.Refused = max(o.stats.Refused, stats.Refused)
		o.mu.Unlock()
		return fmt.Errorf("writing the outbox: %w", err)
	}
	o.settle(stats)
	return nil
}

// settle publishes new stats and wakes all who wait for a change.
func (o *Outbox) settle(stats Stats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	moved := stats.Entries != o.stats.Entries || stats.LastSeq != o.stats.LastSeq || stats.FirstSeq != o.stats.FirstSeq
	o.stats = stats
	if moved {
		close(o.changed)
		o.changed = make(chan struct{})
	}
}

// Append gives the event its id (unless it has one), seq, epoch and run, and puts
// it at the end. On an error nothing was appended and the transaction may go on.
func (t *Tx) Append(e *protos.HealthEvent) error {
	seq := t.stats.LastSeq + 1
	if e.Id == "" {
		id, err := t.b.o.NewID()
		if err != nil {
			return fmt.Errorf("generating an event ID: %w", err)
		}
		e.Id = id
	}
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[record.MetadataSeq] = strconv.FormatUint(seq, 10)
	e.Metadata[record.MetadataSeqEpoch] = t.b.epoch
	e.Metadata[record.MetadataSeqRuns] = t.b.runs
	body, err := proto.Marshal(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case len(body) > MaxEventBytes:
		return ErrTooLarge
	case t.stats.Entries >= t.b.o.MaxEntries, t.stats.Bytes+int64(len(body)) > t.b.o.MaxBytes:
		t.stats.Refused++
		return ErrFull
	}
	return t.write(seq, body)
}

func (t *Tx) write(seq uint64, body []byte) error {
	now := t.b.o.Clock.Now()
	if err := t.tx.Bucket(bucketQueue).Put(key(seq), append(key(uint64(now.UnixNano())), body...)); err != nil {
		return fmt.Errorf("appending entry %d: %w", seq, err)
	}
	if err := t.tx.Bucket(bucketMeta).Put(keySeq, key(seq)); err != nil {
		return fmt.Errorf("counting entry %d: %w", seq, err)
	}
	t.stats.LastSeq = seq
	t.stats.Entries++
	t.stats.Bytes += int64(len(body))
	if t.stats.FirstSeq == 0 {
		t.stats.FirstSeq, t.stats.Oldest = seq, now
	}
	return nil
}

// LastSeq is the seq of the newest event, this transaction's included.
func (t *Tx) LastSeq() uint64 { return t.stats.LastSeq }

// Note returns the owner's note of that name, nil when there is none.
func (t *Tx) Note(name string) []byte {
	return append([]byte(nil), t.tx.Bucket(bucketOwner).Get([]byte(name))...)
}

// SetNote keeps a note of the owner's, in the same atomic step as the events.
func (t *Tx) SetNote(name string, value []byte) error {
	if err := t.tx.Bucket(bucketOwner).Put([]byte(name), value); err != nil {
		return fmt.Errorf("writing note %s: %w", name, err)
	}
	return nil
}

// Note returns the owner's note of that name, nil when there is none.
func (o *Outbox) Note(name string) ([]byte, error) {
	var value []byte
	err := o.db.View(func(raw *bbolt.Tx) error {
		value = (&Tx{tx: raw, b: o}).Note(name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading note %s: %w", name, err)
	}
	return value, nil
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func number(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (o *Options) fill() {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 100_000
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.NewID == nil {
		o.NewID = func() (string, error) {
			id, err := uuid.NewV7()
			return id.String(), err
		}
	}
}
