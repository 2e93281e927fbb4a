// Package source reads kernel logs so that reading can go on exactly where it
// stopped, across rotations, restarts and reboots. A source never blocks and
// never skips silently: what it could not read is counted.
package source

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
)

// Line is one line of a kernel log.
type Line struct {
	// Text is valid UTF-8.
	Text string
	// Kernel is false when a program of user space wrote the line.
	Kernel bool
	// Past marks a line of a boot before the current one.
	Past bool
	// Cursor is the place behind the line; Open takes it.
	Cursor json.RawMessage
}

// Counts of what a source met.
type Counts struct {
	// Gaps counts places where lines were lost before they could be read:
	// overwritten kernel records, rotated files that are gone.
	Gaps int64
	// Truncations counts files that were cut and are read again from their start.
	Truncations int64
	// Cut counts lines that were too long and lost their end.
	Cut int64
	// Malformed counts records that could not be parsed.
	Malformed int64
}

// tally counts for a source; a scrape reads it while the source works.
type tally struct {
	gaps, truncations, cut, malformed atomic.Int64
}

// Counts returns what was met so far.
func (t *tally) Counts() Counts {
	return Counts{
		Gaps: t.gaps.Load(), Truncations: t.truncations.Load(), Cut: t.cut.Load(), Malformed: t.malformed.Load(),
	}
}

func encode(cursor any) json.RawMessage {
	data, err := json.Marshal(cursor)
	if err != nil {
		// Cursors hold only numbers and strings.
		panic(fmt.Sprintf("encoding a cursor: %v", err))
	}
	return data
}
