package source

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// past tells whether the line that begins at the cursor is of a past boot, and
// forgets the span that it has left behind.
func (s *File) past() bool {
	for _, p := range s.cursor.Past {
		if p.ID == s.cursor.ID {
			if s.cursor.Offset < p.Until {
				return true
			}
			s.forgetPast(p.ID)
			return false
		}
	}
	return false
}

func (s *File) forgetPast(id fileID) {
	var rest []span
	for _, p := range s.cursor.Past {
		if p.ID != id {
			rest = append(rest, p)
		}
	}
	s.cursor.Past = rest
}

// Reboot takes note of a proven reboot: what is unread so far belongs to the
// past boot as far as File says. It returns the cursor to keep.
func (s *File) Reboot(string) (json.RawMessage, error) {
	if !s.started {
		return nil, errors.New("noting a reboot in a log that is not open")
	}
	files, err := family(s.path)
	if err != nil {
		return nil, err
	}
	row := append([]entry{{id: s.cursor.ID}}, inLine(files, s.cursor.Changed, s.cursor.ID, s.path)...)
	spans, err := s.boundaries(row)
	if err != nil {
		return nil, err
	}
	s.cursor.Past = spans
	return s.Cursor(), nil
}

// boundaries finds where the current boot begins in the unread row of files;
// the first one is the open file.
func (s *File) boundaries(row []entry) ([]span, error) {
	for i, unread := range slices.Backward(row) {
		at, found, err := s.bootIn(unread, i == 0)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		spans := []span{{unread.id, at}}
		for _, earlier := range row[:i] {
			spans = append(spans, span{earlier.id, math.MaxInt64})
		}
		return spans, nil
	}
	info, err := s.open.Stat()
	if err != nil {
		return nil, fmt.Errorf("looking at the log: %w", err)
	}
	return []span{{s.cursor.ID, info.Size()}}, nil
}

// bootIn looks for the last start of a boot in the unread part of a file.
func (s *File) bootIn(e entry, current bool) (int64, bool, error) {
	if current {
		return lastBoot(s.open, s.cursor.Offset)
	}
	f, err := openLog(e)
	if err != nil {
		return 0, false, fmt.Errorf("looking for the current boot: %w", err)
	}
	defer f.Close()
	return lastBoot(f, 0)
}

// lastBoot returns where the last line that starts a boot begins, at or after
// offset from.
func lastBoot(f io.ReaderAt, from int64) (at int64, found bool, err error) {
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, math.MaxInt64-from), chunk)
	start, pos, fresh := from, from, true
	for {
		part, err := r.ReadSlice('\n')
		if fresh && kernellog.StartsBoot(kernellog.Clean(part[:min(len(part), 512)])) {
			at, found = start, true
		}
		pos += int64(len(part))
		switch {
		case err == nil:
			start, fresh = pos, true
		case errors.Is(err, bufio.ErrBufferFull):
			fresh = false
		case errors.Is(err, io.EOF):
			return at, found, nil
		default:
			return 0, false, err
		}
	}
}
