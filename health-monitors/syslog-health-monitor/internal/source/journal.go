package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// MaxLine is how much of a message is kept; the rest of a longer one is dropped.
const MaxLine = 64 << 10

// Times of a journal's reader.
const (
	// restartPace is the pause before a failed journalctl is started again.
	restartPace = 5 * time.Second
	// hangLimit is how long a journalctl that reads to the end may print nothing.
	hangLimit = time.Minute
	// lagLimit is how long entries may wait for us. After that the place is
	// looked up again, because the journal may have dropped what we had not read.
	lagLimit = 30 * time.Second
)

// Journal reads the kernel's entries of a systemd journal through journalctl,
// without cgo. It first reads to the end, which a journalctl that ends proves,
// and follows from there. Its place is the cursor of an entry: reading on begins
// with that very entry, so that a journal which no longer holds it shows.
//
// Entries name their boot. Without a place reading begins with the current boot;
// with one, the rest of a past boot is read and marked as past.
type Journal struct {
	tally
	tool  string
	dir   string
	clock clock.PassiveClock
	wake  chan struct{}
	// uptime is the time since boot, as entries have it.
	uptime func() time.Duration

	boot     string // the current one, as the journal writes it
	cursor   journalCursor
	reader   *follower
	open     bool
	expect   bool      // the next entry should be the one at the cursor
	lost     bool      // it was not; entries behind the place are not new
	broken   time.Time // when a reader failed last; zero after a good one
	heard    time.Time // when a reader returned an entry last
	lastRead time.Time // when Read was called last
	trouble  error     // why the last reader failed
}

type journalCursor struct {
	// Entry is the journal's own cursor of the last entry that was read.
	Entry string `json:"entry"`
	// Machine is the id of this machine, as entries of its own boot gave it.
	Machine string `json:"machine,omitempty"`
}

// NewJournal prepares to read the journal in a folder with the given journalctl.
func NewJournal(tool, dir string, c clock.PassiveClock) *Journal {
	return &Journal{tool: tool, dir: dir, clock: c, wake: make(chan struct{}, 1), uptime: uptime}
}

// Wake signals that many entries wait, so that a flood is read at its own pace.
func (s *Journal) Wake() <-chan struct{} { return s.wake }

// Name is the kind of source and what it reads.
func (s *Journal) Name() string { return "journal " + s.dir }

// Open goes to the place behind cursor, or to the beginning of boot. A cursor of
// another source is as good as none.
func (s *Journal) Open(cursor json.RawMessage, boot string) error {
	position := journalCursor{}
	if len(cursor) > 0 {
		if err := json.Unmarshal(cursor, &position); err != nil {
			return fmt.Errorf("decoding the cursor: %w", err)
		}
	}
	if position.Entry != "" {
		if _, err := kernellog.ParseCursor(position.Entry); err != nil {
			s.gap(0, "saved journal position unreadable, reading the current boot from its start")
			position = journalCursor{}
		}
	}
	s.shut()
	s.cursor, s.boot, s.open = position, kernellog.JournalBoot(boot), true
	s.lastRead = s.clock.Now()
	return s.begin()
}

// Reboot makes boot the current one: entries of others are past from here on.
func (s *Journal) Reboot(boot string) (json.RawMessage, error) {
	s.boot = kernellog.JournalBoot(boot)
	return encode(s.cursor), nil
}

// Close ends the reader.
func (s *Journal) Close() error {
	s.shut()
	s.open = false
	return nil
}

func (s *Journal) shut() {
	if s.reader != nil {
		s.reader.close()
		s.observe()
		s.reader = nil
	}
}

// begin starts to read to the end, unless a reader has failed just before.
func (s *Journal) begin() error {
	if s.trouble != nil && s.clock.Since(s.broken) < restartPace {
		return s.trouble
	}
	return s.start(false)
}

// start starts a journalctl at the cursor: one that ends at the journal's end,
// or one that follows.
func (s *Journal) start(follow bool) error {
	r, err := run(s.tool, s.args(follow), follow, s.wake)
	if err != nil {
		return s.fail(fmt.Errorf("reading the journal in %s: %w", s.dir, err))
	}
	s.reader, s.expect, s.lost, s.heard = r, s.cursor.Entry != "", false, s.clock.Now()
	return nil
}

// fail notes that the reader is gone; the next one starts after a pause.
func (s *Journal) fail(err error) error {
	s.broken, s.trouble = s.clock.Now(), err
	return err
}

// args of a journalctl: the kernel's entries, what the reset tool wrote, and the
// journal's own word about lost records. --merge keeps --follow from showing the
// newest boot only.
func (s *Journal) args(follow bool) []string {
	args := []string{
		"--directory=" + s.dir, "--output=json", "--output-fields=" + kernellog.EntryFields,
		"--no-pager", "--quiet", "--merge", "--no-tail",
	}
	if follow {
		args = append(args, "--follow")
	}
	boot := ""
	if s.cursor.Entry != "" {
		args = append(args, "--cursor="+s.cursor.Entry)
	} else {
		boot = "_BOOT_ID=" + s.boot
	}
	for i, match := range []string{"_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=" + kernellog.ResetTag, kernellog.MissedMatch} {
		if i > 0 {
			args = append(args, "+")
		}
		if boot != "" {
			args = append(args, boot)
		}
		args = append(args, match)
	}
	return args
}

// Read returns up to limit lines. It does not wait for journalctl.
func (s *Journal) Read(limit int) (Batch, error) {
	if !s.open {
		return Batch{}, errors.New("reading a journal that is not open")
	}
	now := s.clock.Now()
	if now.Sub(s.lastRead) > lagLimit && s.reader != nil {
		s.shut() // what it had ready is read again from the cursor
		s.addNote("journal reader stalled, position looked up again")
	}
	s.lastRead = now
	if s.reader == nil {
		if err := s.begin(); err != nil {
			return Batch{Notes: s.takeNotes()}, err
		}
	}
	lines, end, err := s.take(limit)
	return Batch{Lines: lines, End: end && err == nil, Notes: s.takeNotes()}, err
}

// take returns what the reader has ready; end is true if it follows and has nothing more.
func (s *Journal) take(limit int) (lines []Line, end bool, err error) {
	defer s.observe()
	for len(lines) < limit {
		select {
		case e, more := <-s.reader.entries:
			if !more && len(lines) > 0 {
				return lines, false, nil // its end is found again
			}
			if !more {
				return nil, false, s.ended()
			}
			s.heard = s.clock.Now()
			if line, isNew := s.line(e); isNew {
				lines = append(lines, line)
			}
		default:
			if !s.reader.follow && s.clock.Since(s.heard) > hangLimit {
				s.shut()
				s.restarts.Add(1)
				return nil, false, s.fail(fmt.Errorf("reading the journal in %s: no output from journalctl for %s", s.dir, hangLimit))
			}
			return lines, s.reader.follow && len(lines) == 0, nil
		}
	}
	return lines, false, nil
}

// ended goes on after the end of a journalctl: to following when all is read,
// else to a new start after a pause.
func (s *Journal) ended() error {
	err, followed := s.reader.err, s.reader.follow
	s.observe()
	s.reader = nil
	if err == nil && !followed {
		s.trouble = nil
		return s.start(true)
	}
	if err == nil {
		err = errors.New("journalctl stopped following")
	}
	s.restarts.Add(1)
	return s.fail(fmt.Errorf("reading the journal in %s: %w", s.dir, err))
}

// observe counts and notes what the reader met besides entries.
func (s *Journal) observe() {
	if s.reader == nil {
		return
	}
	malformed, complaint := s.reader.observed()
	if malformed > 0 {
		s.malformed.Add(malformed)
		s.addNote(fmt.Sprintf("%d journal entries unreadable", malformed))
	}
	if complaint != "" {
		s.addNote("journalctl: " + complaint)
	}
}

// line makes a line of an entry that is new.
func (s *Journal) line(e kernellog.Entry) (Line, bool) {
	if s.cursor.Entry != "" && !s.isNew(e) {
		return Line{}, false
	}
	s.cursor.Entry = e.Cursor
	if !s.sameMachine(e) {
		return Line{}, false
	}
	if e.Missed > 0 {
		s.gap(e.Missed, "kernel records were missed by the journal")
	}
	if e.Short {
		s.cut.Add(1)
	}
	if len(e.Text) > MaxLine {
		s.cut.Add(1)
		e.Text = kernellog.Cut(e.Text, MaxLine)
	}
	return Line{
		Text: e.Text, Kernel: e.Kernel, Root: e.Root, Past: e.Position.Boot != s.boot, Boot: kernellog.KernelBoot(e.Position.Boot),
		At: s.written(e.Position), SinceBoot: time.Duration(e.Position.Monotonic) * time.Microsecond, Gap: s.before(), Cursor: encode(s.cursor),
	}, true
}

// written returns when an entry was written: its own time, but never in the future, nor
// before the boot that it is of; then the clock was wrong, and the time since boot is not.
// It is zero for an entry without a time.
func (s *Journal) written(p kernellog.Position) time.Time {
	if p.Wall == 0 {
		return time.Time{}
	}
	now, at := s.clock.Now(), p.Time()
	if booted := now.Add(-s.uptime()); p.Boot == s.boot && (at.Before(booted) || at.After(now)) {
		at = booted.Add(time.Duration(p.Monotonic) * time.Microsecond)
	}
	if at.After(now) {
		at = now
	}
	return at.UTC()
}

// sameMachine reports whether an entry is of this machine, and not one that others left in the
// same folder. The running boot is proof, for there reading begins; the machine that it names
// holds for the other boots.
func (s *Journal) sameMachine(e kernellog.Entry) bool {
	if e.Machine == "" {
		return true
	}
	if e.Position.Boot == s.boot {
		s.cursor.Machine = e.Machine
	}
	return s.cursor.Machine == "" || s.cursor.Machine == e.Machine
}

// isNew reports whether an entry is new, and not one that a reader shows again. The first
// entry of a reader is the one at the cursor, else the journal has dropped it, and maybe
// others with it; then journalctl begins where it thinks best, and what stands behind our
// place there is passed.
func (s *Journal) isNew(e kernellog.Entry) bool {
	if s.expect {
		s.expect = false
		if e.Cursor == s.cursor.Entry {
			return false
		}
		s.lost = true
		s.gap(0, "the journal no longer contains the last read position")
	}
	if s.lost {
		read, err := kernellog.ParseCursor(s.cursor.Entry)
		s.lost = err == nil && e.Position.Behind(read, s.boot)
	}
	return !s.lost
}
