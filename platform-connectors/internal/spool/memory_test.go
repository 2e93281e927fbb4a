package spool

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSmallestEventsDoNotFillTheMemory fills the spool with the smallest events
// there are. What a full one takes in memory when it is opened is a fraction of
// its bound, which is what the chart's memory limit counts on.
func TestSmallestEventsDoNotFillTheMemory(t *testing.T) {
	o := options(t.TempDir())
	o.MaxBytes = 16 << 20
	n := fillUp(t, o)
	o.Metrics = options("").Metrics
	before := heap()
	again := open(t, o)
	took := heap() - before
	if most := o.MaxBytes * 2 / 5; took > most {
		t.Errorf("%d entries take %d bytes of memory, want at most %d", n, took, most)
	}
	if got := len(again.live); got != n {
		t.Errorf("%d entries, want %d", got, n)
	}
}

// fillUp appends the smallest events until the spool is full, closes it, and
// returns how many it took.
func fillUp(t *testing.T, o Options) int {
	t.Helper()
	s := open(t, o)
	n, err := 0, error(nil)
	for err == nil {
		batch := make([]record.Record, 1000)
		for i := range batch {
			var id uuid.UUID
			id[6], id[8] = 0x70, 0x80
			copy(id[9:], fmt.Sprintf("%07d", n+i))
			batch[i] = record.Record{ID: id.String(), CreatedAt: time.Unix(0, 0).UTC(), Event: record.Event{
				ID: id.String(), Agent: "a", CheckName: "c", NodeName: "n", GeneratedTimestamp: time.Unix(0, 0).UTC(),
				RecommendedAction: record.ActionNone, ProcessingStrategy: record.Process,
			}}
		}
		if err = s.Append(t.Context(), batch); err == nil {
			n += len(batch)
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRecordsKeptInMemoryAreBoundedInBytes: readers that keep up read from
// memory, the others from the disk.
func TestRecordsKeptInMemoryAreBoundedInBytes(t *testing.T) {
	s := open(t, options(t.TempDir()))
	r := s.Reader("store")
	const n, size = 800, 32 << 10
	kept := func() (bytes int64, records int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.live {
			if e.record != nil {
				bytes += e.size
				records++
			}
		}
		if bytes != s.recentBytes {
			t.Errorf("%d bytes are kept, %d counted", bytes, s.recentBytes)
		}
		return bytes, records
	}
	for i := range n {
		r := rec(i, fmt.Sprint(i, strings.Repeat("x", size)))
		r.Event.RecommendedAction = record.ActionNone
		add(t, s, r)
		if i%100 > 0 && i < n-1 {
			continue
		}
		if bytes, records := kept(); bytes > recentBytes || records == 0 {
			t.Fatalf("%d records of %d bytes are kept", records, bytes)
		}
	}
	if got := messages(t, s, 0); len(got) != n {
		t.Errorf("%d records are read", len(got))
	}
	if err := r.Confirm(n - 2); err != nil {
		t.Fatal(err)
	}
	if _, records := kept(); records != 2 {
		t.Errorf("%d records are kept of two", records)
	}
}
