package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// How far the consumers of a store's feeds have come: one theory, and one engine, for
// every store. A store brings its own place in its own history,
// and reads and writes one line for each consumer.
//
// A position means: of this history (Server), of this kind of events (Kind), the
// consumer has done everything up to this place, except what a rescan still reads.
// It is given out with each record and stored when the record and all before it are
// done. So it may only promise too little: then records come again, which is
// allowed. Nothing is ever skipped.
//
// The order. A consumer reads its history once, from the beginning; each loss begins
// another reading, which has a higher number. Of two positions that of the later
// reading is ahead; of two of one reading that with the later place. A store whose
// places can be compared compares them; one whose places only the server can read
// (MongoDB's resume tokens) counts what the reading has delivered. What is stored is
// replaced only by what is ahead, so a commit that comes late takes nothing back.
//
// The loss. A stored position is of no use if it cannot be read, belongs to another
// history (a restore, a failover), follows the other kind of events, or lies beyond
// the end of the history (an older state was restored). Only the store knows its
// end; all else is evaluated here.
//
// The rescan is the reading after a loss. Where everything lies that has happened
// since is not known any more, but when it happened is: the line keeps the low
// watermark, the store's time of the last committed record. Of what was there when
// the rescan began are read the records stored or changed since then, less Margin,
// and all that are not finished; without a watermark only the latter. What comes
// after is read as before. While the rescan lasts the watermark stands: if the rescan
// is lost as well, the next one has to go back as far.

// Kind is which events a feed follows.
type Kind string

const (
	// Inserts are appended records: each comes once.
	Inserts Kind = "inserts"
	// Changes are those and their changes: a record comes again after each.
	Changes Kind = "changes"
)

// KindOf is what a feed with the selector follows.
func KindOf(s record.Selector) Kind {
	if s.InsertsOnly {
		return Inserts
	}
	return Changes
}

// version is the format; positions of another format count as lost.
const version = 1

// Header is what every position begins with.
type Header struct {
	Version int    `json:"v"`
	Server  string `json:"s"`
	Kind    Kind   `json:"k"`
	// Reading numbers the readings of the consumer.
	Reading int64 `json:"c,omitempty"`
	// Mark is when the record at this position was stored or changed, in
	// microseconds by the store's clock; 0 is no record.
	Mark int64 `json:"m,omitempty"`
}

// BeginHeader is the header of a reading that begins in a history; before is the number
// of the last one that is known, 0 for a consumer's first.
func BeginHeader(server string, k Kind, before int64) Header {
	return Header{Version: version, Server: server, Kind: k, Reading: before + 1}
}

// Common is the header of a position that embeds it.
func (h Header) Common() Header { return h }

// Position is a store's position: a struct of numbers and strings that embeds Header.
type Position[P any] interface {
	Common() Header
	// Valid reports whether the place is one.
	Valid() bool
	// Beyond reports whether the place is later than another of the same reading.
	Beyond(other P) bool
	// Rescanning reports whether a rescan is under way.
	Rescanning() bool
}

// ErrPosition is a text that is no position of the feed.
var ErrPosition = errors.New("not a position of this feed")

// ParsePosition reads a position.
func ParsePosition[P Position[P]](text string) (P, error) {
	var p P
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("%w: %w", ErrPosition, err)
	}
	if h := p.Common(); h.Version != version || h.Server == "" || !p.Valid() {
		return p, fmt.Errorf("%w: version %d", ErrPosition, h.Version)
	}
	return p, nil
}

// PositionText is what Parse reads.
func PositionText[P Position[P]](p P) string {
	b, _ := json.Marshal(p) // numbers and strings always encode
	return string(b)
}

// Ahead reports whether p is further than q, which is of the same history.
func Ahead[P Position[P]](p, q P) bool {
	if a, b := p.Common().Reading, q.Common().Reading; a != b {
		return a > b
	}
	return p.Beyond(q)
}

// Loss is why a stored position cannot be resumed, the label of the metric.
type Loss string

// Losses.
const (
	NotLost Loss = ""
	// Unreadable: garbage, or of another format.
	Unreadable Loss = "unreadable"
	// OtherServer: the database is another one, was restored elsewhere, or failed over.
	OtherServer Loss = "other-server"
	// OtherKind: the consumer's selector followed the other kind of events before.
	OtherKind Loss = "other-kind"
	// BeyondEnd: the store is older than the position.
	BeyondEnd Loss = "beyond-end"
)

// Line is what a store keeps of a consumer.
type Line struct {
	// Stored is true if there is one.
	Stored bool
	// Text is the position.
	Text string
	// Mark is the low watermark; nil when there is none. It is the store's time and
	// not createdAt: a spooled record is stored, and an old record changed, long after
	// it was created.
	Mark *time.Time
}

// EvaluatePosition reads a stored line and returns why it cannot be resumed, if it cannot;
// beyond reports whether a position of this history lies behind the history's end.
func EvaluatePosition[P Position[P]](l Line, server string, k Kind, beyond func(P) bool) (P, Loss) {
	p, err := ParsePosition[P](l.Text)
	h := p.Common()
	switch {
	case err != nil:
		return p, Unreadable
	case h.Server != server:
		return p, OtherServer
	case h.Kind != k:
		return p, OtherKind
	case beyond(p):
		return p, BeyondEnd
	}
	return p, NotLost
}

// Margin is how far before the low watermark a rescan begins: clocks of two servers
// differ, and a transaction takes time.
const Margin = 10 * time.Minute

// Rescan is what a rescan reads of the records that were there when it began.
type Rescan struct {
	// Until is the end of the history then.
	Until int64 `json:"u"`
	// Since is in microseconds: what was stored or changed since then is read, and
	// what is not finished; nil is only the latter.
	Since *int64 `json:"f,omitempty"`
}

// RescanFrom is the rescan of a history that ends at until.
func RescanFrom(mark *time.Time, until int64) Rescan {
	r := Rescan{Until: until}
	if mark != nil {
		since := mark.Add(-Margin).UnixMicro()
		r.Since = &since
	}
	return r
}

// SinceTime is Since as a time; false for none.
func (r Rescan) SinceTime() (time.Time, bool) {
	if r.Since == nil {
		return time.Time{}, false
	}
	return time.UnixMicro(*r.Since), true
}

// next is the line after p was committed on l.
func next[P Position[P]](l Line, p P) Line {
	out := Line{Stored: true, Text: PositionText(p), Mark: l.Mark}
	if m := p.Common().Mark; m > 0 && !p.Rescanning() {
		at := time.UnixMicro(m)
		out.Mark = &at
	}
	return out
}
