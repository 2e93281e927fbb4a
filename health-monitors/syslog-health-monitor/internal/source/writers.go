package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// sample is how much of a file's beginning and end is looked at before its lines
// are believed. In a combined log the lines of others are never far.
const sample = 1 << 20

// ErrCombined means that others than the kernel write into the log file.
var ErrCombined = errors.New("the log file is not the kernel's alone")

// seeWriter remembers that a line is another program's.
func (s *File) seeWriter(line string) {
	if !s.KernelOnly || s.combined != nil {
		return
	}
	if _, tag := kernellog.Message(line); tag != "" {
		s.combined = fmt.Errorf("%w: %s has a line of %.64q, so any user could write a fault into it; "+
			"let syslog write kern.* into a file of its own, or read the journal or /dev/kmsg", ErrCombined, s.path, tag)
	}
}

// checkWriters looks at the beginning and the end of the open file for lines of
// others.
func (s *File) checkWriters(size int64) error {
	places := []int64{0, max(0, size-sample)}
	if s.packed {
		places = places[:1] // nobody knows its end without reading it
		size = sample
	}
	for _, at := range places {
		data := make([]byte, min(sample, size))
		n, err := s.open.ReadAt(data, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the log: %w", err)
		}
		for line := range bytes.Lines(data[:n]) {
			s.seeWriter(kernellog.Clean(bytes.TrimRight(line, "\r\n")))
		}
	}
	return s.combined
}
