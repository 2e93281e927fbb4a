package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// Kmsg reads the kernel's own ring of records. Its place is (boot, seq, time): a
// reader of the same boot skips what it has seen, a reader of another boot
// begins at the oldest record. The kernel's own boot id must be used with it.
// A ring of the same boot that contradicts the place is another ring, for example
// that of a machine that was restored from a snapshot without its state folder: it
// is read from its oldest record too.
//
// The ring is small and its writer waits for nobody, so that a reader of its own
// takes records out as they come; Read hands them on.
type Kmsg struct {
	tally
	path        string
	clock       clock.PassiveClock
	dial        func(path string) (device, error)
	uptime      func() time.Duration
	size        func() (int, error) // of the ring; nil when it was looked at
	wake        chan struct{}
	reader      *ringReader
	booted      time.Time // when the boot's clock stood at zero
	cursor      kmsgCursor
	cursorValid bool   // cursor.Next follows a record
	turned      bool   // the node was watched before this boot
	tip         uint64 // the seq after the last record of this opening; 0 before the first
}

// NewKmsg prepares to read the device at path.
func NewKmsg(path string, c clock.PassiveClock) *Kmsg {
	return &Kmsg{path: path, clock: c, dial: openDevice, uptime: uptime, size: RingBytes, wake: make(chan struct{}, 1)}
}

// Name is the kind of source and what it reads.
func (s *Kmsg) Name() string { return "kmsg " + s.path }

// Wake signals that records wait.
func (s *Kmsg) Wake() <-chan struct{} { return s.wake }

// Open goes to the place behind cursor if it is of boot, the current one, else
// to the oldest record.
func (s *Kmsg) Open(cursor json.RawMessage, boot string) error {
	position := kmsgCursor{}
	if len(cursor) > 0 {
		if err := json.Unmarshal(cursor, &position); err != nil {
			return fmt.Errorf("decoding the cursor: %w", err)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	dev, err := s.dial(s.path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", s.path, err)
	}
	s.checkRingSize()
	s.cursor, s.cursorValid, s.tip = position, true, 0
	if position.Boot != boot {
		s.cursor, s.cursorValid, s.turned = kmsgCursor{Boot: boot}, false, position.Boot != ""
	}
	s.booted = s.clock.Now().Add(-s.uptime())
	s.reader = readRing(dev, s.clock, s.wake, func() { s.malformed.Add(1) })
	return nil
}

// ringEnough holds half a second of the 41,000 lines a second that a driver
// writes when it has lost a GPU: as long as a busy node may keep us from a core.
const ringEnough = 2 << 20

// checkRingSize reports once when the ring is small.
func (s *Kmsg) checkRingSize() {
	if s.size == nil {
		return
	}
	size, err := s.size()
	s.size = nil
	if err != nil {
		s.addNote(fmt.Sprintf("size of the kernel ring buffer unknown: %v", err))
		return
	}
	s.ring.Store(int64(size))
	if size < ringEnough {
		s.addNote(fmt.Sprintf("kernel ring buffer has %d KiB, which a driver that lost a GPU overwrites within %d ms, so "+
			"set log_buf_len=2M on the kernel command line", size>>10, size/ringLine*1000/floodPace))
	}
}

const (
	ringLine  = 108    // bytes that a line takes of the ring, about
	floodPace = 41_000 // lines a second
)

// Close releases the device.
func (s *Kmsg) Close() error {
	if s.reader == nil {
		return nil
	}
	err := s.reader.close()
	s.reader = nil
	if err != nil {
		return fmt.Errorf("closing %s: %w", s.path, err)
	}
	return nil
}

// Reboot begins again at the oldest record of the new boot.
func (s *Kmsg) Reboot(boot string) (json.RawMessage, error) {
	if err := s.Open(nil, boot); err != nil {
		return nil, err
	}
	s.turned = true
	return encode(s.cursor), nil
}

// Read returns up to limit records. It does not wait for the device.
func (s *Kmsg) Read(limit int) (Batch, error) {
	if s.reader == nil {
		return Batch{}, errors.New("reading a kernel log that is not open")
	}
	var out []Line
	for len(out) == 0 { // past those that are known
		records, looks, err := s.reader.take(limit)
		if err != nil {
			return Batch{Notes: s.takeNotes()}, fmt.Errorf("reading %s: %w", s.path, err)
		}
		if len(records) == 0 {
			beyond := s.cursor.beyond(s.tip)
			if beyond && looks >= pollsAtEnd {
				return s.restart("the ring buffer ends before the last read record")
			}
			return Batch{End: looks > 0 && !beyond, Notes: s.takeNotes()}, nil
		}
		for _, given := range records {
			r, err := kernellog.ParseRecord(given.raw)
			if err != nil {
				s.malformed.Add(1)
				continue
			}
			s.tip = r.Seq + 1
			at := s.written(given, r)
			switch s.cursor.compare(r) {
			case recordNew:
				out = append(out, s.take(r, at))
			case recordOfAnotherRing:
				return s.restart("the ring buffer has another record at the last read position")
			case recordAlreadyRead:
			}
		}
	}
	return Batch{Lines: out, Notes: s.takeNotes()}, nil
}

// restart begins at the oldest record, because the place belongs to another ring.
func (s *Kmsg) restart(why string) (Batch, error) {
	if err := s.Open(nil, s.cursor.Boot); err != nil {
		return Batch{Notes: s.takeNotes()}, err
	}
	s.gap(0, "kernel records may have been lost: "+why+", so the ring buffer was replaced within the same boot and is read from its oldest record")
	return Batch{Restarted: true, Notes: s.takeNotes()}, nil
}

// take makes a line of a record that has not been seen.
func (s *Kmsg) take(r kernellog.Record, at time.Time) Line {
	switch {
	case s.cursorValid && r.Seq > s.cursor.Next:
		s.gap(int64(r.Seq-s.cursor.Next), "kernel records were overwritten before the monitor read them")
	case !s.cursorValid && s.turned && r.Seq > 0:
		// A first start ever begins where the ring does; a later boot is ours to
		// read from its first record.
		s.gap(int64(r.Seq), "kernel records of a new boot were overwritten before the monitor read them")
	}
	s.cursor.Next, s.cursor.Usec, s.cursorValid = r.Seq+1, &r.Usec, true
	// Only root may write to the device, and never as the kernel.
	return Line{
		Text: r.Text, Kernel: r.Facility == 0, Root: r.Facility != 0, At: at, SinceBoot: time.Duration(r.Usec) * time.Microsecond,
		Gap: s.before(), Cursor: encode(s.cursor),
	}
}

// written is when a record was: it carries the time since boot, and the wall clock of the
// boot is that time off now. A record that was waited for shows how far the two clocks have
// come apart since.
func (s *Kmsg) written(given readout, r kernellog.Record) time.Time {
	since := time.Duration(r.Usec) * time.Microsecond
	if given.live {
		s.booted = given.at.Add(-since)
	}
	if at := s.booted.Add(since); since >= 0 && at.Before(given.at) {
		return at.UTC()
	}
	return given.at.UTC()
}
