package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// MaxLine is how much of a line is kept; the rest of a longer one is dropped.
const MaxLine = 64 << 10

// chunk is how much is read from a file at once.
const chunk = 64 << 10

// File follows a syslog file by name: through renaming rotation (the old file
// is found by its inode and finished first), through truncation, and past lines
// of any length or content. It polls; a notification saves nothing at the pace
// of a poll and fails on some mounted folders.
//
// Lines carry no boot id. Those that a proven reboot left unread belong to the
// past boot: everything up to the last line that starts a boot ("Linux version")
// where there is one, else what the followed file holds at that moment. Another
// file is the new boot's.
type File struct {
	tally
	path string
	// KernelOnly refuses a file in which another program than the kernel writes:
	// there, anybody may write a line that looks like the kernel's.
	KernelOnly bool

	combined error // the open file is one

	clock  clock.PassiveClock
	cursor fileCursor
	open   logFile
	packed bool   // the open file is
	head   []byte // first bytes of the open file, at most printBytes
	tail   []byte // its bytes before cursor.TailAt, at most printBytes

	zone    *time.Location // of stamps that name none
	stamp   string         // the last one that was read, and its time
	stamped time.Time

	kept    []byte // beginning of the line at cursor.Offset
	scanned int64  // bytes of that line read so far, kept or dropped
	started bool
}

// fileCursor is the durable place in a file.
type fileCursor struct {
	ID     fileID `json:"id"`
	Offset int64  `json:"offset"`
	Print  print  `json:"print"`
	// Changed is the file's modification time (Unix nanoseconds) when it was
	// read last: the place in the row of rotated files should this one vanish.
	Changed int64 `json:"changed,omitempty"`
	// Ended is when the log had last been read to its end (Unix nanoseconds): what
	// stands behind the place was written later.
	Ended int64 `json:"ended,omitempty"`
	// TailAt is a place before Offset, and Tail the fingerprint of the bytes before
	// it: a file that was cut and has grown again has others there.
	TailAt int64 `json:"tailAt,omitempty"`
	Tail   print `json:"tail,omitzero"`
	// Past says which unread parts of which files belong to a past boot.
	Past []span `json:"past,omitempty"`
}

// span is the part of a file before Until.
type span struct {
	ID    fileID `json:"id"`
	Until int64  `json:"until"`
}

// NewFile prepares to follow the file at path.
func NewFile(path string, c clock.PassiveClock) *File {
	return &File{path: path, clock: c, zone: time.Local}
}

// Name is the kind of source and what it reads.
func (s *File) Name() string { return "file " + s.path }

// Open goes to the place behind cursor, or, without one, to the beginning of
// the current boot in the file: the last line that starts a boot, else the
// first line. It fails while there is no file to read; call it again.
func (s *File) Open(cursor json.RawMessage, _ string) error {
	s.shut()
	s.cursor = fileCursor{}
	if len(cursor) > 0 {
		if err := json.Unmarshal(cursor, &s.cursor); err != nil {
			return fmt.Errorf("decoding the cursor: %w", err)
		}
	}
	if s.cursor.ID == (fileID{}) {
		return s.begin()
	}
	return s.resume()
}

// begin starts a first reading.
func (s *File) begin() error {
	if err := s.use(entry{path: s.path}, 0); err != nil {
		return err
	}
	at, found, err := lastBoot(s.open, 0)
	if err != nil {
		s.shut()
		return fmt.Errorf("looking for the current boot in %s: %w", s.path, err)
	}
	if found {
		s.rewind(at)
	}
	return nil
}

// resume finds the file of the cursor under whatever name it has now, packed or
// copied meanwhile.
func (s *File) resume() error {
	position := s.cursor
	files, err := family(s.path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.id != position.ID {
			continue
		}
		if err := s.use(f, position.Offset); err != nil {
			return err
		}
		s.cursor.Past = position.Past
		if same, err := position.in(s.open); err != nil || same {
			return err
		}
		return s.again(position, f.path == s.path)
	}
	if found, err := s.useCopy(position, files); err != nil || found {
		return err
	}
	next, ok := after(files, position.Changed, position.ID, s.path)
	if !ok {
		return fmt.Errorf("opening %s: %w", s.path, fs.ErrNotExist)
	}
	if err := s.use(next, 0); err != nil {
		return err
	}
	s.gap(0, "the log file that was read last is gone; going on with "+next.path)
	s.cursor.Past = position.Past
	return nil
}

func (s *File) rewind(offset int64) {
	s.cursor.Offset, s.kept, s.scanned = offset, nil, 0
	s.cursor.Print = s.print()
	s.cursor.TailAt, s.cursor.Tail, s.tail = 0, print{}, nil
}

// use opens a file and stands at offset. A file that took the name since it was
// seen is refused: the one that was meant has been renamed.
func (s *File) use(e entry, offset int64) error {
	f, err := openLog(e)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("looking at the log: %w", err), f.Close())
	}
	if !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("opening the log: %s is not a file", e.path), f.Close())
	}
	if e.id != (fileID{}) && e.id != identify(info) {
		return errors.Join(fmt.Errorf("opening the log: %s was renamed at this moment", e.path), f.Close())
	}
	s.shut()
	s.open, s.packed, s.head, s.started = f, e.packed, nil, true
	s.cursor = fileCursor{ID: identify(info), Changed: info.ModTime().UnixNano(), Ended: s.cursor.Ended}
	s.combined = nil
	if err := s.readHead(); err != nil {
		return err
	}
	if err := s.checkWriters(info.Size()); err != nil {
		s.shut()
		return err
	}
	if !e.packed {
		s.learnZone(info.Size(), info.ModTime())
	}
	s.rewind(offset)
	return nil
}

func (s *File) shut() {
	if s.open != nil {
		_ = s.open.Close() // read only: nothing can be lost
	}
	s.open, s.started = nil, false
}

// Close releases the file.
func (s *File) Close() error { s.shut(); return nil }

// Cursor is the place behind the last line that Read returned.
func (s *File) Cursor() json.RawMessage { return encode(s.cursor) }

// Read returns up to limit lines. A last line without its newline waits for it.
func (s *File) Read(limit int) (Batch, error) { return s.batch(s.read(limit)) }

func (s *File) read(limit int) ([]Line, error) {
	if !s.started {
		return nil, errors.New("reading a log that is not open")
	}
	if s.combined != nil {
		return nil, s.combined
	}
	lines, err := s.readOn(limit)
	if s.combined != nil {
		// Nor were the lines before it the kernel's alone.
		return nil, s.combined
	}
	return lines, err
}

func (s *File) readOn(limit int) ([]Line, error) {
	now := s.clock.Now()
	if err := errors.Join(s.checkCut(), s.markTail()); err != nil {
		return nil, err
	}
	lines, err := s.lines(nil, limit)
	for err == nil && len(lines) == 0 {
		var moved bool
		lines, moved, err = s.rotate(limit)
		if !moved {
			break
		}
		if len(lines) == 0 {
			lines, err = s.lines(lines, limit)
		}
	}
	if err == nil && len(lines) == 0 {
		s.cursor.Ended = now.UnixNano()
	}
	return lines, err
}

// lines appends complete lines of the open file until limit or its end.
func (s *File) lines(out []Line, limit int) ([]Line, error) {
	buf := make([]byte, chunk)
	for len(out) < limit {
		n, err := s.open.ReadAt(buf, s.cursor.Offset+s.scanned)
		out = s.split(out, buf[:n], limit)
		if err != nil && !errors.Is(err, io.EOF) {
			return out, fmt.Errorf("reading the log: %w", err)
		}
		if n == 0 {
			s.checkPacked()
			return out, s.look()
		}
	}
	return out, s.look()
}

// look takes the state of the open file into the cursor.
func (s *File) look() error {
	info, err := s.open.Stat()
	if err != nil {
		return fmt.Errorf("looking at the log: %w", err)
	}
	s.cursor.Changed = info.ModTime().UnixNano()
	return s.readHead()
}

// split consumes bytes into lines; what is beyond limit is read again later.
func (s *File) split(out []Line, data []byte, limit int) []Line {
	for len(data) > 0 && len(out) < limit {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			s.keep(data)
			s.scanned += int64(len(data))
			return out
		}
		s.keep(data[:end])
		s.scanned += int64(end + 1)
		out = append(out, s.finish())
		data = data[end+1:]
	}
	return out
}

func (s *File) keep(part []byte) {
	s.kept = append(s.kept, part[:min(len(part), MaxLine-len(s.kept))]...)
}

// finish ends the line at the cursor and moves the cursor behind it.
func (s *File) finish() Line {
	if s.scanned > int64(len(s.kept))+1 {
		s.cut.Add(1)
	}
	text := kernellog.Clean(bytes.TrimSuffix(s.kept, []byte{'\r'}))
	s.seeWriter(text)
	at := s.written(text)
	past := s.past()
	s.cursor.Offset += s.scanned
	s.kept, s.scanned = s.kept[:0], 0
	s.cursor.Print = s.print()
	return Line{Text: text, Kernel: true, Past: past, At: at, SinceBoot: kernellog.SinceBoot(text), Gap: s.before(), Cursor: s.Cursor()}
}
