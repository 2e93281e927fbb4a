package kept

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	// segmentBytes and segmentFor are from when on a segment takes nothing more.
	segmentBytes = 1 << 20
	segmentFor   = time.Minute
	digits       = 20
)

// shelf is the folder of what is kept: files of one server's records each, oldest
// first. They are not synced: they survive the process, and with the power the
// node loses nothing that the store has not got, unless that fails over as well.
type shelf struct {
	dir      string
	segments []*segment
	open     *os.File // the last segment, if it takes more
	next     uint64
}

// segment is one file: a line that names the server, then a record in each line.
type segment struct {
	path      string
	server    string
	bytes     int64
	records   int
	begun, at time.Time // at is when the newest record came
}

// heading is the first line of a segment.
type heading struct {
	Server string `json:"server"`
}

// openShelf finds what an earlier process has kept.
func openShelf(dir string, log *slog.Logger) (*shelf, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the folder of acknowledged records: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of acknowledged records: %w", err)
	}
	s := &shelf{dir: dir, next: 1}
	for _, entry := range names { // sorted by name
		n, err := strconv.ParseUint(entry.Name(), 10, 64)
		if err != nil || len(entry.Name()) != digits {
			continue // nobody's of ours
		}
		s.next = n + 1
		found, err := findSegment(filepath.Join(dir, entry.Name()))
		if err != nil {
			log.Warn("a file of acknowledged records is not used", "file", entry.Name(), "error", err)
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return nil, fmt.Errorf("removing a file of acknowledged records: %w", err)
			}
			continue
		}
		s.segments = append(s.segments, found)
	}
	return s, nil
}

func findSegment(path string) (*segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(f).ReadBytes('\n')
	var h heading
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil && h.Server == "" {
		err = errors.New("it names no server")
	}
	return &segment{path: path, server: h.Server, bytes: info.Size(), begun: info.ModTime(), at: info.ModTime()}, err
}

// read returns the records of a segment: all that are whole. The last one may be
// torn by a kill; nobody was told that it is kept.
func (s *segment) read() (out []record.Record, err error) {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return nil, err
	}
	damaged := 0
	lines := bytes.SplitAfter(data, []byte("\n"))
	for _, line := range lines[min(1, len(lines)):] {
		var r record.Record
		switch {
		case !bytes.HasSuffix(line, []byte("\n")):
		case json.Unmarshal(line, &r) != nil:
			damaged++
		default:
			out = append(out, r)
		}
	}
	if damaged > 0 {
		err = fmt.Errorf("%d of its lines are no records", damaged)
	}
	return out, err
}

func (s *shelf) empty() bool { return len(s.segments) == 0 }

// server is the one that the newest segment is of; empty if there is none.
func (s *shelf) server() string {
	if s.empty() {
		return ""
	}
	return s.segments[len(s.segments)-1].server
}

// owed are the oldest segments that are not of a server: as many as are together no
// larger than one may be, and one at least if there is any.
func (s *shelf) owed(server string) (out []*segment) {
	bytes := int64(0)
	for _, g := range s.segments {
		if g.server == server {
			continue
		}
		if bytes += g.bytes; len(out) > 0 && bytes > segmentBytes {
			break
		}
		out = append(out, g)
	}
	return out
}

func (s *shelf) bytes() (n int64) {
	for _, g := range s.segments {
		n += g.bytes
	}
	return n
}

// put writes what a server has acknowledged.
func (s *shelf) put(server string, now time.Time, records []record.Record) error {
	var data []byte
	var err error
	for _, r := range records {
		if data, err = record.AppendJSON(data, r); err != nil {
			return fmt.Errorf("encoding record %s: %w", r.ID, err)
		}
		data = append(data, '\n')
	}
	if err := s.begin(server, now); err != nil {
		return err
	}
	g := s.segments[len(s.segments)-1]
	n, err := s.open.Write(data)
	g.bytes, g.records, g.at = g.bytes+int64(n), g.records+len(records), now
	if err != nil {
		// Its end may be torn: it takes no more.
		return errors.Join(fmt.Errorf("writing acknowledged records: %w", err), s.close())
	}
	return nil
}

// begin makes the last segment one that takes more records of a server.
func (s *shelf) begin(server string, now time.Time) error {
	if s.open != nil {
		g := s.segments[len(s.segments)-1]
		if age := now.Sub(g.begun); g.server == server && g.bytes < segmentBytes && age >= 0 && age < segmentFor {
			return nil
		}
		if err := s.close(); err != nil {
			return err
		}
	}
	line, err := json.Marshal(heading{server})
	if err != nil {
		return fmt.Errorf("encoding the server's name: %w", err)
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%0*d", digits, s.next))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("beginning a file of acknowledged records: %w", err)
	}
	s.next++
	if _, err := f.Write(append(line, '\n')); err != nil {
		return errors.Join(fmt.Errorf("beginning a file of acknowledged records: %w", err), f.Close(), os.Remove(path))
	}
	s.open = f
	s.segments = append(s.segments, &segment{path: path, server: server, bytes: int64(len(line)) + 1, begun: now, at: now})
	return nil
}

// shed lets go the segments of a server that are older, and the oldest of all while
// they are too much; it counts the records of the latter.
func (s *shelf) shed(server string, before time.Time, most int64) (dropped int, err error) {
	bytes := s.bytes()
	for _, g := range slices.Clone(s.segments) {
		old := g.server == server && g.at.Before(before)
		if !old && bytes <= most {
			continue
		}
		if !old {
			dropped += g.count()
		}
		bytes -= g.bytes
		err = errors.Join(err, s.remove(g))
	}
	return dropped, err
}

// count is how many records a segment has.
func (s *segment) count() int {
	if s.records == 0 { // of an earlier process
		records, _ := s.read()
		return len(records)
	}
	return s.records
}

// remove lets a segment go.
func (s *shelf) remove(g *segment) error {
	var err error
	if s.open != nil && g == s.segments[len(s.segments)-1] {
		err = s.close()
	}
	s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g })
	if err := errors.Join(err, os.Remove(g.path)); err != nil {
		return fmt.Errorf("removing a file of acknowledged records: %w", err)
	}
	return nil
}

// close ends the last segment.
func (s *shelf) close() error {
	if s.open == nil {
		return nil
	}
	f := s.open
	s.open = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing a file of acknowledged records: %w", err)
	}
	return nil
}
