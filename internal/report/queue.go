package report

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
)

// Entry is one event that waits in the outbox.
type Entry struct {
	Seq   uint64
	Added time.Time
	// Event is nil when the stored bytes cannot be decoded; Err is why.
	Event *protos.HealthEvent
	Err   error
}

// Peek returns the oldest entries behind a seq: at least one if there is any, at most
// count, and not more than bytes of encoded events beyond the first.
func (o *Outbox) Peek(after uint64, count, bytes int) ([]Entry, error) {
	var out []Entry
	err := o.db.View(func(tx *bbolt.Tx) error {
		size := 0
		c := tx.Bucket(bucketQueue).Cursor()
		k, v := c.First()
		if after > 0 {
			k, v = c.Seek(key(after + 1))
		}
		for ; k != nil && len(out) < count; k, v = c.Next() {
			if size += len(v); size > bytes && len(out) > 0 {
				break
			}
			out = append(out, decode(k, v))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	return out, nil
}

func decode(k, v []byte) Entry {
	e := Entry{Seq: number(k), Added: time.Unix(0, int64(number(v)))}
	event := &protos.HealthEvent{}
	if e.Err = proto.Unmarshal(v[min(8, len(v)):], event); e.Err == nil {
		e.Event = event
	}
	return e
}

// Remove takes acknowledged entries out.
func (o *Outbox) Remove(seqs ...uint64) error {
	return o.Write(func(tx *Tx) error {
		for _, seq := range seqs {
			if err := tx.remove(seq); err != nil {
				return err
			}
		}
		return tx.recount()
	})
}

// DeadLetter is an event that the connector refused for good.
type DeadLetter struct {
	Seq    uint64
	At     time.Time
	Reason string
	// Event is the encoded event as it was to be sent.
	Event []byte
}

// Bury moves an entry to the dead letters, so that it blocks nothing behind it.
func (o *Outbox) Bury(seq uint64, reason string) error {
	return o.Write(func(tx *Tx) error {
		v := tx.tx.Bucket(bucketQueue).Get(key(seq))
		if v == nil {
			return nil
		}
		deadLetter, err := json.Marshal(DeadLetter{Seq: seq, At: tx.b.o.Clock.Now().UTC(), Reason: reason, Event: v[min(8, len(v)):]})
		if err != nil {
			return fmt.Errorf("encoding dead letter %d: %w", seq, err)
		}
		dead := tx.tx.Bucket(bucketDead)
		if err := dead.Put(key(seq), deadLetter); err != nil {
			return fmt.Errorf("writing dead letter %d: %w", seq, err)
		}
		if tx.stats.Dead++; tx.stats.Dead > maxDead {
			oldest, _ := dead.Cursor().First()
			if err := dead.Delete(oldest); err != nil {
				return fmt.Errorf("dropping the oldest dead letter: %w", err)
			}
			tx.stats.Dead--
		}
		if err := tx.remove(seq); err != nil {
			return err
		}
		return tx.recount()
	})
}

func (t *Tx) remove(seq uint64) error {
	queue := t.tx.Bucket(bucketQueue)
	v := queue.Get(key(seq))
	if v == nil {
		return nil
	}
	t.stats.Entries--
	t.stats.Bytes -= int64(len(v) - 8)
	if err := queue.Delete(key(seq)); err != nil {
		return fmt.Errorf("removing entry %d: %w", seq, err)
	}
	return nil
}

// recount looks up the oldest entry after removals.
func (t *Tx) recount() error {
	t.stats.FirstSeq, t.stats.Oldest = 0, time.Time{}
	if k, v := t.tx.Bucket(bucketQueue).Cursor().First(); k != nil {
		t.stats.FirstSeq, t.stats.Oldest = number(k), time.Unix(0, int64(number(v)))
	}
	return nil
}
