package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ring is a kernel ring of recorded answers; every opening starts at the first.
type ring struct {
	answers []any // string (a record) or error
	opened  int
	closed  int
}

// reader is one opening of the ring.
type reader struct {
	ring *ring
	next int
}

func (r *ring) open(string) (device, error) {
	r.opened++
	return &reader{ring: r}, nil
}

func (r *reader) Read(buf []byte) (int, error) {
	if r.next >= len(r.ring.answers) {
		return 0, syscall.EAGAIN
	}
	answer := r.ring.answers[r.next]
	r.next++
	if err, ok := answer.(error); ok {
		return 0, err
	}
	return copy(buf, answer.(string)), nil
}

func (r *reader) Close() error { r.ring.closed++; return nil }

func records(from, to int) []any {
	var out []any
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("4,%d,%d,-;line %d\n SUBSYSTEM=pci\n", i, 1000*i, i))
	}
	return out
}

func drain(t *testing.T, s *Kmsg) (texts []string, cursor json.RawMessage) {
	t.Helper()
	for {
		lines, err := s.read(2)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) == 0 {
			return texts, cursor
		}
		for _, l := range lines {
			texts, cursor = append(texts, l.Text), l.Cursor
		}
	}
}

func expectKmsg(t *testing.T, s *Kmsg, want ...string) json.RawMessage {
	t.Helper()
	got, cursor := drain(t, s)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	return cursor
}

func openKmsg(t *testing.T, r *ring, cursor json.RawMessage, boot string) *Kmsg {
	t.Helper()
	s := NewKmsg("ring")
	s.dial = r.open
	if err := s.Open(cursor, boot); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestKmsgResumesBehindItsPlace(t *testing.T) {
	r := &ring{answers: records(0, 2)}
	s := openKmsg(t, r, nil, "a")
	cursor := expectKmsg(t, s, "line 0", "line 1", "line 2")
	r.answers = records(0, 4)
	s = openKmsg(t, r, cursor, "a")
	expectKmsg(t, s, "line 3", "line 4")
	if diff := cmp.Diff(Counts{}, s.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestKmsgCountsOverwrittenRecords(t *testing.T) {
	t.Run("while nobody read", func(t *testing.T) {
		r := &ring{answers: records(0, 1)}
		cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1")
		r.answers = records(7, 8)
		s := openKmsg(t, r, cursor, "a")
		expectKmsg(t, s, "line 7", "line 8")
		if diff := cmp.Diff(Counts{Gaps: 1, Lost: 5}, s.Counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
	t.Run("while reading", func(t *testing.T) {
		r := &ring{answers: append(append(records(0, 1), syscall.EPIPE), records(9, 9)...)}
		s := openKmsg(t, r, nil, "a")
		expectKmsg(t, s, "line 0", "line 1", "line 9")
		if s.Counts().Gaps != 1 {
			t.Errorf("counts %+v", s.Counts())
		}
	})
	t.Run("of a new boot, before it was read", func(t *testing.T) {
		r := &ring{answers: records(0, 1)}
		cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1")
		r.answers = records(40, 41)
		s := openKmsg(t, r, cursor, "b")
		expectKmsg(t, s, "line 40", "line 41")
		if diff := cmp.Diff(Counts{Gaps: 1, Lost: 40}, s.Counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
	t.Run("a ring that has turned before the first start is no gap", func(t *testing.T) {
		s := openKmsg(t, &ring{answers: records(500, 501)}, nil, "a")
		expectKmsg(t, s, "line 500", "line 501")
		if s.Counts().Gaps != 0 {
			t.Errorf("counts %+v", s.Counts())
		}
	})
}

func TestKmsgOfAnotherBootBeginsAnew(t *testing.T) {
	r := &ring{answers: records(0, 2)}
	cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1", "line 2")
	r.answers = records(0, 0)
	s := openKmsg(t, r, cursor, "b")
	expectKmsg(t, s, "line 0")
	place, err := s.Reboot("c")
	if err != nil {
		t.Fatal(err)
	}
	expectKmsg(t, s, "line 0")
	expectKmsg(t, openKmsg(t, r, place, "c"), "line 0")
	if s.Counts() != (Counts{}) || r.closed == 0 {
		t.Errorf("counts %+v, closed %d times", s.Counts(), r.closed)
	}
}

func TestKmsgGoesOnAfterWhatItCannotRead(t *testing.T) {
	r := &ring{answers: []any{"no record", syscall.EINVAL, syscall.EINTR, "12,0,5,-;from a program\n", "3,1,6,-;from the kernel\n"}}
	s := openKmsg(t, r, nil, "a")
	lines, err := s.read(9)
	if err != nil || len(lines) != 2 || lines[0].Kernel || !lines[1].Kernel || s.Counts().Malformed != 2 {
		t.Errorf("lines %+v, error %v, counts %+v", lines, err, s.Counts())
	}
	r.answers = []any{syscall.EIO}
	s = openKmsg(t, r, nil, "a")
	if _, err := s.read(9); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v, want EIO", err)
	}
}

// TestRealKmsg reads the machine's own ring where that is allowed; elsewhere
// the refusal must be told.
func TestRealKmsg(t *testing.T) {
	s := NewKmsg("/dev/kmsg")
	err := s.Open(nil, "a")
	if err != nil {
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("opening: %v", err)
		}
		if _, err := s.read(1); err == nil {
			t.Error("a log that is not open was read")
		}
		return
	}
	defer s.Close()
	lines, err := s.read(1 << 20)
	if err != nil || len(lines) == 0 {
		t.Fatalf("%d lines, error %v", len(lines), err)
	}
	if again, err := s.read(1 << 20); err != nil || len(again) > len(lines) {
		t.Errorf("the end was not reached: %d more lines, error %v", len(again), err)
	}
	resumed := NewKmsg("/dev/kmsg")
	if err := resumed.Open(lines[len(lines)-1].Cursor, "a"); err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	rest, err := resumed.read(1 << 20)
	if err != nil || len(rest) > 50 || s.Counts().Malformed != 0 {
		t.Errorf("%d lines behind the last one, error %v, counts %+v", len(rest), err, s.Counts())
	}
	// Writing is a matter of rights; what a program wrote is not the kernel's.
	if err := os.WriteFile("/dev/kmsg", []byte("nvsentinel test line\n"), 0); err == nil {
		for _, l := range mustRead(t, resumed) {
			if l.Text == "nvsentinel test line" && l.Kernel {
				t.Error("a program's line counts as the kernel's")
			}
		}
	}
}

func mustRead(t *testing.T, s *Kmsg) []Line {
	t.Helper()
	lines, err := s.read(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestKmsgTellsWhoWroteARecord: only root may write to the device, and never as
// the kernel.
func TestKmsgTellsWhoWroteARecord(t *testing.T) {
	s := openKmsg(t, &ring{answers: []any{"3,0,1,-;NVRM: x\n", "27,1,2,-;nvsentinel-gpu-reset: y\n"}}, nil, "a")
	lines := mustRead(t, s)
	if len(lines) != 2 || !lines[0].Kernel || lines[0].Root || lines[1].Kernel || !lines[1].Root {
		t.Errorf("lines %+v", lines)
	}
}
