// Package source reads kernel logs so that reading can go on exactly where it
// stopped, across rotations, restarts and reboots. A source never blocks and
// never skips silently: what it could not read is counted.
package source

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Line is one line of a kernel log.
type Line struct {
	// Text is valid UTF-8. A program's line begins with its tag ("name: ").
	Text string
	// Kernel is false when a program of user space wrote the line.
	Kernel bool
	// Root is true when the source proves that root wrote the program's line.
	Root bool
	// Past marks a line of a boot before the current one.
	Past bool
	// Boot is the boot that the line itself names; empty where lines name none.
	Boot string
	// At is when the line was written; zero where the source does not show it.
	At time.Time
	// SinceBoot is how long after the boot the line was written; 0 where the source does
	// not show it.
	SinceBoot time.Duration
	// Gap is what was lost just before the line; nil is nothing.
	Gap *Gap
	// Cursor is the place behind the line; Open takes it.
	Cursor json.RawMessage
}

// Gap is a stretch of the log that nobody has read, nor can any more.
type Gap struct {
	// Lost is the number of its lines, 0 when nobody knows it.
	Lost int64
	// Why describes what happened to them.
	Why string
}

// Batch is what one Read found.
type Batch struct {
	Lines []Line
	// End means that the log is read to its end for now. Without lines and without End more
	// is on its way.
	End bool
	// Restarted means that the remembered place belongs to another log: the next lines are
	// the oldest of this one, and may have been read before.
	Restarted bool
	// Notes describe what was lost or complained about since the last Read.
	Notes []string
}

// Counts of what a source met.
type Counts struct {
	// Gaps counts places where lines were lost before they could be read:
	// overwritten kernel records, a journal that no longer holds the place that was
	// read last.
	Gaps int64
	// Lost counts the lines of those gaps whose number is known.
	Lost int64
	// Cut counts lines that were too long and lost their end.
	Cut int64
	// Malformed counts records that could not be parsed.
	Malformed int64
	// Ring is the size of the kernel's ring in bytes; 0 where it is not known.
	Ring int64
	// Restarts counts readers of the journal that had to be started again.
	Restarts int64
}

// maxNotes bounds the notes until the next Read; the counts are exact in any case.
const maxNotes = 16

// tally counts for a source; a scrape reads it while the source works.
type tally struct {
	gaps, lost, cut, malformed, restarts, ring atomic.Int64

	mu    sync.Mutex
	notes []string
	ahead *Gap // that no line has yet
}

// Counts returns what was met so far.
func (t *tally) Counts() Counts {
	return Counts{
		Gaps: t.gaps.Load(), Lost: t.lost.Load(), Cut: t.cut.Load(),
		Malformed: t.malformed.Load(), Restarts: t.restarts.Load(), Ring: t.ring.Load(),
	}
}

// gap counts a place where lines were lost, for the next line; lost is their number, 0 when
// nobody knows it.
func (t *tally) gap(lost int64, why string) {
	t.gaps.Add(1)
	t.lost.Add(lost)
	t.mu.Lock()
	if t.ahead == nil {
		t.ahead = &Gap{Why: why}
	}
	t.ahead.Lost += lost
	t.mu.Unlock()
	if lost > 0 {
		why = fmt.Sprintf("%s (%d lines)", why, lost)
	}
	t.addNote(why)
}

// before takes the gap before the next line.
func (t *tally) before() *Gap {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.ahead
	t.ahead = nil
	return out
}

// addNote keeps a note for the next Read.
func (t *tally) addNote(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.notes) < maxNotes {
		t.notes = append(t.notes, note)
	}
}

// takeNotes takes the notes.
func (t *tally) takeNotes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.notes
	t.notes = nil
	return out
}

func encode(cursor any) json.RawMessage {
	data, err := json.Marshal(cursor)
	if err != nil {
		// Cursors hold only numbers and strings.
		panic(fmt.Sprintf("encoding a cursor: %v", err))
	}
	return data
}
