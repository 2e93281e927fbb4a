package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
)

// lockWait bounds the wait for another process that holds the file, for example
// the pod that this one replaces.
const lockWait = 10 * time.Second

// Open opens the outbox at path or makes one. An unreadable file is renamed (to
// ".damaged", one is kept) and replaced: a broken disk block must not silence a monitor
// for ever, and Origin reports that the past is unknown.
func Open(path string, o Options) (*Outbox, error) {
	o.fill()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the outbox folder: %w", err)
	}
	origin := Resumed
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		origin = Created
	}
	b, err := load(path, o)
	if origin == Resumed && damaged(err) {
		origin = Replaced
		if err := os.Rename(path, path+".damaged"); err != nil {
			return nil, fmt.Errorf("renaming the damaged outbox: %w", err)
		}
		b, err = load(path, o)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the outbox %s: %w", path, err)
	}
	if b.origin = origin; origin != Resumed {
		if err := durable.SyncDir(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// errDamaged marks content that cannot be read.
var errDamaged = errors.New("outbox is damaged")

// damaged distinguishes a broken file from a busy one or a full disk.
func damaged(err error) bool {
	for _, sign := range []error{errDamaged, bbolterrors.ErrInvalid, bbolterrors.ErrVersionMismatch, bbolterrors.ErrChecksum} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return false
}

// load opens the file and walks all of it once, so that damage shows here and
// not in the middle of the work. A torn file makes the memory map fault; the
// fault is turned into errDamaged.
func load(path string, o Options) (b *Outbox, err error) {
	var db *bbolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("%w: %v", errDamaged, r)
		}
		if err != nil && db != nil {
			closeIgnoringError(db)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		return nil, err
	}
	b = &Outbox{db: db, o: o, changed: make(chan struct{})}
	if err := db.Update(b.prepare); err != nil {
		return nil, err
	}
	return b, nil
}

// closeIgnoringError releases a file that is about to be renamed or given up; the
// error that led here is the one to report.
func closeIgnoringError(db *bbolt.DB) {
	defer func() { _ = recover() }()
	_ = db.Close()
}

// prepare makes the buckets and the epoch of a new file and counts an old one.
func (o *Outbox) prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketQueue, bucketDead, bucketOwner} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("creating bucket %s: %w", name, err)
		}
	}
	meta := tx.Bucket(bucketMeta)
	if len(meta.Get(keyEpoch)) == 0 {
		epoch, err := uuid.NewRandom()
		if err != nil {
			return fmt.Errorf("generating an epoch: %w", err)
		}
		if err := meta.Put(keyEpoch, []byte(epoch.String())); err != nil {
			return fmt.Errorf("writing the epoch: %w", err)
		}
	}
	o.epoch = string(meta.Get(keyEpoch))
	if err := o.begin(meta); err != nil {
		return err
	}
	return o.count(tx)
}

// begin begins a new run of the counter with every Open: nobody can know whether the file
// is as it was left, or restored from an image that is older.
func (o *Outbox) begin(meta *bbolt.Bucket) error {
	last := number(meta.Get(keySeq))
	o.runs = record.NextRun(string(meta.Get(keyRuns)), last > number(meta.Get(keyBegan)))
	if err := errors.Join(meta.Put(keyRuns, []byte(o.runs)), meta.Put(keyBegan, key(last))); err != nil {
		return fmt.Errorf("starting a run of the counter: %w", err)
	}
	return nil
}

// count walks every page of the file.
func (o *Outbox) count(tx *bbolt.Tx) error {
	s := Stats{LastSeq: number(tx.Bucket(bucketMeta).Get(keySeq))}
	err := tx.Bucket(bucketQueue).ForEach(func(k, v []byte) error {
		if len(k) != 8 || len(v) < 8 {
			return fmt.Errorf("%w: entry %x", errDamaged, k)
		}
		if s.Entries == 0 {
			s.FirstSeq, s.Oldest = number(k), time.Unix(0, int64(number(v)))
		}
		s.Entries++
		s.Bytes += int64(len(v) - 8)
		s.LastSeq = max(s.LastSeq, number(k))
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket(bucketDead).ForEach(func(_, _ []byte) error { s.Dead++; return nil })
	if err != nil {
		return err
	}
	o.stats = s
	return tx.Bucket(bucketOwner).ForEach(func(_, _ []byte) error { return nil })
}
