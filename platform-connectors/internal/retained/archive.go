package retained

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

// archive is the folder of what is kept: files of one server's records each, oldest
// first. They are not synced: they survive the process, and with the power the
// node loses nothing that the store has not got, unless that fails over as well.
type archive struct {
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

// openArchive finds what an earlier process has kept.
func openArchive(dir string, log *slog.Logger) (*archive, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating the directory of acknowledged records: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of acknowledged records: %w", err)
	}
	s := &archive{dir: dir, next: 1}
	for _, entry := range names { // sorted by name
		n, err := strconv.ParseUint(entry.Name(), 10, 64)
		if err != nil || len(entry.Name()) != digits {
			continue // not a segment of this archive
		}
		s.next = n + 1
		found, err := findSegment(filepath.Join(dir, entry.Name()))
		if err != nil {
			log.Warn("invalid file of acknowledged records removed", "file", entry.Name(), "error", err)
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
		err = errors.New("server name is missing")
	}
	return &segment{path: path, server: h.Server, bytes: info.Size(), begun: info.ModTime(), at: info.ModTime()}, err
}

// read returns the records of a segment: all that are whole. The last one may be torn by a
// kill; nobody was informed that it is kept.
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
		err = fmt.Errorf("%d of its lines are not valid records", damaged)
	}
	return out, err
}

func (a *archive) empty() bool { return len(a.segments) == 0 }

// server is the one that the newest segment is of; empty if there is none.
func (a *archive) server() string {
	if a.empty() {
		return ""
	}
	return a.segments[len(a.segments)-1].server
}

// owed are the oldest segments that are not of a server: as many as are together no
// larger than one may be, and one at least if there is any.
func (a *archive) owed(server string) (out []*segment) {
	bytes := int64(0)
	for _, g := range a.segments {
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

func (a *archive) bytes() (n int64) {
	for _, g := range a.segments {
		n += g.bytes
	}
	return n
}

// append writes what a server has acknowledged.
func (a *archive) append(server string, now time.Time, records []record.Record) error {
	var data []byte
	var err error
	for _, r := range records {
		if data, err = record.AppendJSON(data, r); err != nil {
			return fmt.Errorf("encoding record %s: %w", r.ID, err)
		}
		data = append(data, '\n')
	}
	if err := a.begin(server, now); err != nil {
		return err
	}
	g := a.segments[len(a.segments)-1]
	n, err := a.open.Write(data)
	g.bytes, g.records, g.at = g.bytes+int64(n), g.records+len(records), now
	if err != nil {
		// Its end may be torn: it takes no more.
		return errors.Join(fmt.Errorf("writing acknowledged records: %w", err), a.close())
	}
	return nil
}

// begin makes the last segment one that takes more records of a server.
func (a *archive) begin(server string, now time.Time) error {
	if a.open != nil {
		g := a.segments[len(a.segments)-1]
		if age := now.Sub(g.begun); g.server == server && g.bytes < segmentBytes && age >= 0 && age < segmentFor {
			return nil
		}
		if err := a.close(); err != nil {
			return err
		}
	}
	line, err := json.Marshal(heading{server})
	if err != nil {
		return fmt.Errorf("encoding the server name: %w", err)
	}
	path := filepath.Join(a.dir, fmt.Sprintf("%0*d", digits, a.next))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("creating a file of acknowledged records: %w", err)
	}
	a.next++
	if _, err := f.Write(append(line, '\n')); err != nil {
		return errors.Join(fmt.Errorf("creating a file of acknowledged records: %w", err), f.Close(), os.Remove(path))
	}
	a.open = f
	a.segments = append(a.segments, &segment{path: path, server: server, bytes: int64(len(line)) + 1, begun: now, at: now})
	return nil
}

// shed releases the older segments of a server, and the oldest of all while there are too
// many bytes; it counts the records of the latter.
func (a *archive) shed(server string, before time.Time, most int64) (dropped int, err error) {
	bytes := a.bytes()
	for _, g := range slices.Clone(a.segments) {
		old := g.server == server && g.at.Before(before)
		if !old && bytes <= most {
			continue
		}
		if !old {
			dropped += g.count()
		}
		bytes -= g.bytes
		err = errors.Join(err, a.remove(g))
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
func (a *archive) remove(g *segment) error {
	var err error
	if a.open != nil && g == a.segments[len(a.segments)-1] {
		err = a.close()
	}
	a.segments = slices.DeleteFunc(a.segments, func(other *segment) bool { return other == g })
	if err := errors.Join(err, os.Remove(g.path)); err != nil {
		return fmt.Errorf("removing a file of acknowledged records: %w", err)
	}
	return nil
}

// close ends the last segment.
func (a *archive) close() error {
	if a.open == nil {
		return nil
	}
	f := a.open
	a.open = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing a file of acknowledged records: %w", err)
	}
	return nil
}
