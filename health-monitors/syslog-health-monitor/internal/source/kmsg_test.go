package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// fakeRing is a kernel ring of recorded answers; every opening starts at the first.
type fakeRing struct {
	answers []any // string (a record) or error
	opened  int
	closed  int
}

// reader is one opening of the ring.
type reader struct {
	ring   *fakeRing
	next   int
	closed chan struct{}
}

func (f *fakeRing) open(string) (device, error) {
	f.opened++
	return &reader{ring: f, closed: make(chan struct{})}, nil
}

func (r *reader) Next(buf []byte, idle func()) (int, error) {
	if r.next >= len(r.ring.answers) {
		for range 3 { // as when time passes
			idle()
		}
		<-r.closed
		return 0, os.ErrClosed
	}
	answer := r.ring.answers[r.next]
	r.next++
	if err, ok := answer.(error); ok {
		return 0, err
	}
	return copy(buf, answer.(string)), nil
}

func (r *reader) Close() error { r.ring.closed++; close(r.closed); return nil }

func records(from, to int) []any {
	var out []any
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("4,%d,%d,-;line %d\n SUBSYSTEM=pci\n", i, 1000*i, i))
	}
	return out
}

// readAll reads to the end of what the ring has, in small portions.
func readAll(t *testing.T, s *Kmsg) (lines []Line) {
	t.Helper()
	testkit.Until(t, time.Minute, func() bool {
		for {
			b, err := s.Read(2)
			if err != nil {
				t.Fatal(err)
			}
			if lines = append(lines, b.Lines...); len(b.Lines) == 0 {
				return b.End
			}
		}
	})
	return lines
}

func drain(t *testing.T, s *Kmsg) (texts []string, cursor json.RawMessage) {
	t.Helper()
	for _, l := range readAll(t, s) {
		texts, cursor = append(texts, l.Text), l.Cursor
	}
	return texts, cursor
}

func expectKmsg(t *testing.T, s *Kmsg, want ...string) json.RawMessage {
	t.Helper()
	got, cursor := drain(t, s)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	return cursor
}

func openKmsg(t *testing.T, r *fakeRing, cursor json.RawMessage, boot string) *Kmsg {
	t.Helper()
	s := NewKmsg("ring", clock.RealClock{})
	s.dial, s.size = r.open, nil
	if err := s.Open(cursor, boot); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestKmsgResumesBehindItsPlace(t *testing.T) {
	r := &fakeRing{answers: records(0, 2)}
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
		r := &fakeRing{answers: records(0, 1)}
		cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1")
		r.answers = records(7, 8)
		s := openKmsg(t, r, cursor, "a")
		expectKmsg(t, s, "line 7", "line 8")
		if diff := cmp.Diff(Counts{Gaps: 1, Lost: 5}, s.Counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
	t.Run("while reading", func(t *testing.T) {
		r := &fakeRing{answers: append(append(records(0, 1), syscall.EPIPE), records(9, 9)...)}
		s := openKmsg(t, r, nil, "a")
		expectKmsg(t, s, "line 0", "line 1", "line 9")
		if s.Counts().Gaps != 1 {
			t.Errorf("counts %+v", s.Counts())
		}
	})
	t.Run("of a new boot, before it was read", func(t *testing.T) {
		r := &fakeRing{answers: records(0, 1)}
		cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1")
		r.answers = records(40, 41)
		s := openKmsg(t, r, cursor, "b")
		expectKmsg(t, s, "line 40", "line 41")
		if diff := cmp.Diff(Counts{Gaps: 1, Lost: 40}, s.Counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
	t.Run("a ring that has turned before the first start is no gap", func(t *testing.T) {
		s := openKmsg(t, &fakeRing{answers: records(500, 501)}, nil, "a")
		expectKmsg(t, s, "line 500", "line 501")
		if s.Counts().Gaps != 0 {
			t.Errorf("counts %+v", s.Counts())
		}
	})
}

func TestKmsgOfAnotherBootRestarts(t *testing.T) {
	r := &fakeRing{answers: records(0, 2)}
	cursor := expectKmsg(t, openKmsg(t, r, nil, "a"), "line 0", "line 1", "line 2")
	r.answers = records(0, 0)
	s := openKmsg(t, r, cursor, "b")
	expectKmsg(t, s, "line 0")
	position, err := s.Reboot("c")
	if err != nil {
		t.Fatal(err)
	}
	expectKmsg(t, s, "line 0")
	expectKmsg(t, openKmsg(t, r, position, "c"), "line 0")
	if s.Counts() != (Counts{}) || r.closed == 0 {
		t.Errorf("counts %+v, closed %d times", s.Counts(), r.closed)
	}
}

func TestKmsgContinuesAfterUnreadableRecord(t *testing.T) {
	r := &fakeRing{answers: []any{"no record", syscall.EINVAL, syscall.EINTR, "12,0,5,-;from a program\n", "3,1,6,-;from the kernel\n"}}
	s := openKmsg(t, r, nil, "a")
	lines := readAll(t, s)
	if len(lines) != 2 || lines[0].Kernel || !lines[1].Kernel || lines[1].SinceBoot != 6*time.Microsecond || s.Counts().Malformed != 2 {
		t.Errorf("lines %+v, counts %+v", lines, s.Counts())
	}
	r.answers = append(records(0, 0), syscall.EIO)
	s = openKmsg(t, r, nil, "a")
	var lines0 []Line
	testkit.Until(t, time.Minute, func() bool {
		b, err := s.Read(9)
		lines0 = append(lines0, b.Lines...)
		return errors.Is(err, syscall.EIO)
	})
	if len(lines0) != 1 {
		t.Errorf("%d lines came before the error, want 1", len(lines0))
	}
}

// TestRealKmsg reads the machine's own ring where that is allowed; elsewhere
// the refusal must be reported.
func TestRealKmsg(t *testing.T) {
	s := NewKmsg("/dev/kmsg", clock.RealClock{})
	err := s.Open(nil, "a")
	if err != nil {
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("opening: %v", err)
		}
		if _, err := s.Read(1); err == nil {
			t.Error("a log that is not open was read")
		}
		return
	}
	defer s.Close()
	lines := readAll(t, s)
	if len(lines) == 0 {
		t.Fatal("an empty ring")
	}
	for _, l := range lines {
		if l.At.After(time.Now()) || time.Since(l.At) > 100*365*24*time.Hour {
			t.Fatalf("a line of %s", l.At)
		}
	}
	if s.Counts().Ring < 4096 {
		t.Errorf("counts %+v", s.Counts())
	}
	resumed := NewKmsg("/dev/kmsg", clock.RealClock{})
	if err := resumed.Open(lines[len(lines)-1].Cursor, "a"); err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	if rest := readAll(t, resumed); len(rest) > 50 || s.Counts().Malformed != 0 {
		t.Errorf("%d lines behind the last one, counts %+v", len(rest), s.Counts())
	}
	beyond := NewKmsg("/dev/kmsg", clock.RealClock{})
	if err := beyond.Open(json.RawMessage(`{"boot":"a","next":1000000000000}`), "a"); err != nil {
		t.Fatal(err)
	}
	defer beyond.Close()
	if reread := readAll(t, beyond); len(reread) == 0 || reread[0].Gap == nil || beyond.Counts().Gaps == 0 {
		t.Errorf("%d lines of a ring that ends before the place, counts %+v", len(reread), beyond.Counts())
	}
	// Writing is a matter of rights and of the kernel's pace; what a program wrote
	// is not the kernel's, and is read without being asked for.
	if err := os.WriteFile("/dev/kmsg", []byte("nvsentinel test line\n"), 0); err != nil {
		return
	}
	var rest []Line
	testkit.Until(t, time.Minute, func() bool {
		b, err := resumed.Read(1 << 10)
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, b.Lines...)
		return b.End
	})
	for _, l := range rest {
		if l.Text == "nvsentinel test line" && (l.Kernel || time.Since(l.At) > time.Minute) {
			t.Errorf("a program's line is %+v", l)
		}
	}
}

// TestKmsgNamesWriter: only root may write to the device, and never as
// the kernel.
func TestKmsgNamesWriter(t *testing.T) {
	s := openKmsg(t, &fakeRing{answers: []any{"3,0,1,-;NVRM: x\n", "27,1,2,-;nvsentinel-gpu-reset: y\n"}}, nil, "a")
	lines := readAll(t, s)
	if len(lines) != 2 || !lines[0].Kernel || lines[0].Root || lines[1].Kernel || !lines[1].Root {
		t.Errorf("lines %+v", lines)
	}
}
