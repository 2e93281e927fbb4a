package sqlstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// kind is which of a row's two places a feed follows.
type kind string

const (
	// byInsert follows the place of the insertion: a record comes once.
	byInsert kind = "inserts"
	// byChange follows the place of the last change.
	byChange kind = "changes"
)

// columns of the place: transaction, sequence, time.
func (k kind) columns() (tx, seq, at string) {
	if k == byInsert {
		return "insert_tx", "append_seq", "stored_at"
	}
	return "change_tx", "change_seq", "changed_at"
}

// positionVersion is the format; positions of another format count as lost.
const positionVersion = 1

// position is how far a consumer has come: everything at or before (Tx, Seq)
// is done, except what a rescan still has to read.
type position struct {
	Version int    `json:"v"`
	Server  string `json:"s"`
	Kind    kind   `json:"k"`
	Tx      int64  `json:"t"`
	Seq     int64  `json:"n"`
	// Mark is when the record at this position was stored, in microseconds by
	// the store's clock.
	Mark   int64   `json:"m,omitempty"`
	Rescan *rescan `json:"r,omitempty"`
	// Seen are the transactions above Tx whose rows are done too: those that had
	// ended while an older one, of anybody on the server, was under way.
	Seen *Snapshot `json:"x,omitempty"`
	// Part numbers the rows that were delivered beyond Tx and Seen, so that their
	// positions differ; they are done when Seen has come to include them.
	Part int `json:"p,omitempty"`
}

// rescan is the reading again after a lost position: below transaction Until
// only rows stored since Since, and rows not finished, are delivered.
type rescan struct {
	Until int64 `json:"u"`
	// Since is in microseconds; nil after a lost mark.
	Since *int64 `json:"f,omitempty"`
}

// rescanMargin is how far before the low-water mark a rescan begins: clocks of
// two servers differ, and a transaction takes time.
const rescanMargin = 10 * time.Minute

var errPosition = errors.New("not a position of this feed")

func parsePosition(s string) (position, error) {
	var p position
	if err := json.Unmarshal([]byte(s), &p); err != nil {
		return p, fmt.Errorf("%w: %w", errPosition, err)
	}
	if p.Version != positionVersion || p.Server == "" || p.Tx < 0 || p.Seq < 0 {
		return p, fmt.Errorf("%w: version %d", errPosition, p.Version)
	}
	return p, nil
}

func (p position) String() string {
	// The struct holds only numbers and strings: it always encodes.
	b, _ := json.Marshal(p)
	return string(b)
}

// at is the position after the row at (tx, seq).
func (p position) at(tx, seq int64, stored time.Time) position {
	p.Tx, p.Seq, p.Mark, p.Part = tx, seq, stored.UnixMicro(), 0
	if p.Rescan != nil && (tx >= p.Rescan.Until || tx == p.Rescan.Until-1 && seq == math.MaxInt64) {
		p.Rescan = nil
	}
	return p
}

// covers says whether nothing that can be seen at the head lies after p.
func (p position) covers(h Head) bool {
	return p.Tx >= h.Tx || p.Tx == h.Tx-1 && p.Seq == math.MaxInt64 && p.Seen.equal(h.Shot)
}

// through is the position after everything that can be seen at a head.
func (p position) through(h Head) position {
	p = p.at(h.Tx-1, math.MaxInt64, h.At)
	p.Seen = h.Shot
	return p
}

// beyond is the position after the nth row of those that can be seen at and
// above the head's Tx: what it says is done is everything below.
func (p position) beyond(h Head, n int) position {
	seen := p.Seen
	p = p.through(h)
	p.Seen, p.Part = seen, n
	return p
}

// ahead says whether p is further than q. A rescan counts as standing where it
// began, and a later rescan is ahead of an earlier one.
func (p position) ahead(q position) bool {
	switch {
	case p.Rescan == nil && q.Rescan != nil:
		return p.Tx >= q.Rescan.Until-1
	case p.Rescan != nil && q.Rescan == nil:
		return p.Rescan.Until-1 > q.Tx
	case p.Rescan != nil && p.Rescan.Until != q.Rescan.Until:
		return p.Rescan.Until > q.Rescan.Until
	}
	if p.Tx == q.Tx && p.Seq == q.Seq {
		return p.Seen.after(q.Seen)
	}
	return p.Tx > q.Tx || p.Tx == q.Tx && p.Seq > q.Seq
}

// loss is why a stored position cannot be resumed, the label of the metric.
type loss string

// Losses.
const (
	notLost loss = ""
	// unreadable: garbage, or of another format.
	unreadable loss = "unreadable"
	// otherServer: the database was restored elsewhere, or failed over.
	otherServer loss = "other-server"
	// otherKind: the consumer's selector followed the other place before.
	otherKind loss = "other-kind"
	// beyondEnd: the store is older than the position.
	beyondEnd loss = "beyond-end"
)

// lost judges a stored position against the server's head.
func (p position) lost(k kind, h Head) loss {
	switch {
	case p.Server != h.Server:
		return otherServer
	case p.Kind != k:
		return otherKind
	case p.Tx >= h.Tx || p.Rescan != nil && p.Rescan.Until > h.Tx || p.Seen != nil && p.Seen.Next > h.next():
		return beyondEnd
	}
	return notLost
}

// again is where a consumer starts after a loss; mark is nil when it is lost too.
func again(k kind, h Head, mark *time.Time) position {
	r := &rescan{Until: h.Tx}
	if mark != nil {
		since := mark.Add(-rescanMargin).UnixMicro()
		r.Since = &since
	}
	return position{Version: positionVersion, Server: h.Server, Kind: k, Rescan: r}
}
