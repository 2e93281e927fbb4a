package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// recordBytes holds the largest record that Linux hands out.
const recordBytes = 16 << 10

// device is /dev/kmsg: one Read is one record, EAGAIN at the end, EPIPE where
// records were overwritten.
type device interface {
	Read(buf []byte) (int, error)
	Close() error
}

// Kmsg reads the kernel's own ring of records. Its place is (boot, seq): a
// reader of the same boot skips what it has seen, a reader of another boot
// begins at the oldest record. The kernel's own boot id must be used with it.
type Kmsg struct {
	tally
	path   string
	dial   func(path string) (device, error)
	dev    device
	cursor kmsgCursor
	seen   bool // cursor.Seq is a record's
	turned bool // the node was watched before this boot
}

type kmsgCursor struct {
	Boot string `json:"boot"`
	// Next is the seq of the next record to read.
	Next uint64 `json:"next"`
}

// NewKmsg prepares to read the device at path.
func NewKmsg(path string) *Kmsg {
	return &Kmsg{path: path, dial: openDevice}
}

// Name is the kind of source and what it reads.
func (s *Kmsg) Name() string { return "kmsg " + s.path }

// Open goes to the place behind cursor if it is of boot, the current one, else
// to the oldest record.
func (s *Kmsg) Open(cursor json.RawMessage, boot string) error {
	place := kmsgCursor{}
	if len(cursor) > 0 {
		if err := json.Unmarshal(cursor, &place); err != nil {
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
	s.dev = dev
	s.cursor, s.seen = place, true
	if place.Boot != boot {
		s.cursor, s.seen, s.turned = kmsgCursor{Boot: boot}, false, place.Boot != ""
	}
	return nil
}

// Close releases the device.
func (s *Kmsg) Close() error {
	if s.dev == nil {
		return nil
	}
	err := s.dev.Close()
	s.dev = nil
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

// Read returns up to limit records.
func (s *Kmsg) Read(limit int) (Batch, error) { return s.batch(s.read(limit)) }

func (s *Kmsg) read(limit int) ([]Line, error) {
	if s.dev == nil {
		return nil, errors.New("reading a kernel log that is not open")
	}
	var out []Line
	buf := make([]byte, recordBytes)
	for len(out) < limit {
		n, err := s.dev.Read(buf)
		switch {
		case errors.Is(err, syscall.EAGAIN), err == nil && n == 0:
			return out, nil
		case errors.Is(err, syscall.EPIPE):
			continue // overwritten; the next record's seq says how many
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EINVAL):
			s.malformed.Add(1) // larger than any record is; the device has passed it
			continue
		case err != nil:
			return out, fmt.Errorf("reading %s: %w", s.path, err)
		}
		if line, ok := s.take(buf[:n]); ok {
			out = append(out, line)
		}
	}
	return out, nil
}

// take makes a line of a record that has not been seen.
func (s *Kmsg) take(raw []byte) (Line, bool) {
	r, err := kernellog.ParseRecord(raw)
	if err != nil {
		s.malformed.Add(1)
		return Line{}, false
	}
	if s.seen && r.Seq < s.cursor.Next {
		return Line{}, false
	}
	switch {
	case s.seen && r.Seq > s.cursor.Next:
		s.gap(int64(r.Seq-s.cursor.Next), "kernel records were overwritten before they were read")
	case !s.seen && s.turned && r.Seq > 0:
		// A first start ever begins where the ring does; a later boot is ours to
		// read from its first record.
		s.gap(int64(r.Seq), "kernel records of a new boot were overwritten before they were read")
	}
	s.cursor.Next, s.seen = r.Seq+1, true
	// Only root may write to the device, and never as the kernel.
	return Line{Text: r.Text, Kernel: r.Facility == 0, Root: r.Facility != 0, Cursor: encode(s.cursor)}, true
}

// descriptor is a device opened without blocking and outside the runtime's
// poller, which would hide EAGAIN.
type descriptor int

func openDevice(path string) (device, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return descriptor(fd), nil
}

func (d descriptor) Read(buf []byte) (int, error) { return syscall.Read(int(d), buf) }
func (d descriptor) Close() error                 { return syscall.Close(int(d)) }
