package watch

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// writtenLine is a line that the kernel wrote under a boot.
type writtenLine struct{ boot, text string }

// log has the kernel write lines.
func (n *node) log(lines ...string) {
	n.t.Helper()
	for _, text := range lines {
		n.written = append(n.written, writtenLine{n.booted, text})
	}
}

// writtenLog is a source that keeps the lines of past boots, as a journal does. It has
// no thread of its own, so that a test decides what was read when.
type writtenLog struct {
	node *node
	boot string
	at   int // the line to read next
	open bool
	gap  *source.Gap // before the next line
}

// Open goes to a place, or to the first line of the boot.
func (s *writtenLog) Open(cursor json.RawMessage, boot string) error {
	if s.node.away {
		return errors.New("the log is away")
	}
	s.boot, s.at, s.open = boot, 0, true
	if len(cursor) > 0 {
		if err := json.Unmarshal(cursor, &s.at); err != nil || s.at >= s.node.overwritten {
			return err
		}
		s.at, s.gap = s.node.overwritten, &source.Gap{Why: "lines were overwritten"}
		return nil
	}
	for s.at < len(s.node.written) && s.node.written[s.at].boot != boot {
		s.at++
	}
	return nil
}

// prefix is what a source knows of a line beside its text, as tests write it: the time
// of day, and the time since boot.
var prefix = regexp.MustCompile(`^(?:(\d{4}-\d\d-\d\dT\S+) n1 kernel: )?(?:\[ *(\d+\.\d+)\] )?`)

// kernelLine is a line of the kernel as a source gives it.
func kernelLine(text string) source.Line {
	m := prefix.FindStringSubmatch(text)
	line := source.Line{Text: kernellog.Clean([]byte(text[len(m[0]):])), Kernel: true}
	if m[1] != "" {
		var err error
		if line.At, err = time.Parse(time.RFC3339, m[1]); err != nil {
			panic(err) // a test that is wrong
		}
	}
	if m[2] != "" {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			panic(err) // a test that is wrong
		}
		line.SinceBoot = time.Duration(seconds * float64(time.Second))
	}
	return line
}

// Read returns lines, those of other boots marked as past.
func (s *writtenLog) Read(limit int) (source.Batch, error) {
	if !s.open {
		return source.Batch{}, errors.New("reading a log that is not open")
	}
	var b source.Batch
	for ; len(b.Lines) < limit && s.at < len(s.node.written); s.at++ {
		w := s.node.written[s.at]
		line := kernelLine(w.text)
		line.Past, line.Cursor = w.boot != s.boot, json.RawMessage(strconv.Itoa(s.at+1))
		line.Gap, s.gap = s.gap, nil
		b.Lines = append(b.Lines, line)
	}
	b.End = len(b.Lines) == 0
	return b, nil
}

// Reboot makes what was written under other boots past.
func (s *writtenLog) Reboot(boot string) (json.RawMessage, error) {
	s.boot = boot
	return json.RawMessage(strconv.Itoa(s.at)), nil
}

// Counts are none.
func (s *writtenLog) Counts() source.Counts { return source.Counts{} }

// Close ends it.
func (s *writtenLog) Close() error { s.open = false; return nil }
