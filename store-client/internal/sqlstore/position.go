package sqlstore

import (
	"math"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// columns are those of the place that a kind of feed follows: that of the row's
// insertion or of its last change, as transaction, sequence and time.
func columns(k provider.Kind) (tx, seq, at string) {
	if k == provider.Inserts {
		return "insert_tx", "append_seq", "stored_at"
	}
	return "change_tx", "change_seq", "changed_at"
}

// position is how far a consumer has come: everything at or before (Tx, Seq)
// is done, except what a rescan still has to read.
type position struct {
	provider.Header
	Tx  int64 `json:"t"`
	Seq int64 `json:"n"`
	// Rescan ends where transaction Until begins.
	Rescan *provider.Rescan `json:"r,omitempty"`
	// Seen are the transactions above Tx whose rows are done too: those that had
	// ended while an older one, of anybody on the server, was under way.
	Seen *Snapshot `json:"x,omitempty"`
	// Part numbers the rows that were delivered beyond Tx and Seen, so that their
	// positions differ; they are done when Seen has come to include them.
	Part int `json:"p,omitempty"`
}

// Valid implements provider.Position.
func (p position) Valid() bool { return p.Tx >= 0 && p.Seq >= 0 }

// Rescanning implements provider.Position.
func (p position) Rescanning() bool { return p.Rescan != nil }

// Beyond implements provider.Position.
func (p position) Beyond(q position) bool {
	if p.Tx == q.Tx && p.Seq == q.Seq {
		return p.Seen.after(q.Seen)
	}
	return p.Tx > q.Tx || p.Tx == q.Tx && p.Seq > q.Seq
}

// at is the position after the row at (tx, seq).
func (p position) at(tx, seq int64, stored time.Time) position {
	p.Tx, p.Seq, p.Mark, p.Part = tx, seq, stored.UnixMicro(), 0
	if p.Rescan != nil && (tx >= p.Rescan.Until || tx == p.Rescan.Until-1 && seq == math.MaxInt64) {
		p.Rescan = nil
	}
	return p
}

// covers reports whether nothing that can be seen at the head lies after p.
func (p position) covers(h Head) bool {
	return p.Tx >= h.Tx || p.Tx == h.Tx-1 && p.Seq == math.MaxInt64 && p.Seen.equal(h.Shot)
}

// through is the position after everything that can be seen at a head.
func (p position) through(h Head) position {
	p = p.at(h.Tx-1, math.MaxInt64, h.At)
	p.Seen = h.Shot
	return p
}

// beyond is the position after the nth row of those that can be seen at and above the
// head's Tx: it covers everything below.
func (p position) beyond(h Head, n int) position {
	seen := p.Seen
	p = p.through(h)
	p.Seen, p.Part = seen, n
	return p
}

// behind reports whether a position lies behind the end of the history.
func (h Head) behind(p position) bool {
	return p.Tx >= h.Tx || p.Rescan != nil && p.Rescan.Until > h.Tx || p.Seen != nil && p.Seen.Next > h.next()
}

// standing is where a consumer goes on: at its stored position, at the beginning
// when it has none, or with a rescan when the stored one is lost, and then why.
// before is the number of the last reading that the consumer knows of.
func standing(l provider.Line, h Head, k provider.Kind, before int64) (position, provider.Loss) {
	if !l.Stored {
		return position{Header: provider.BeginHeader(h.Server, k, before)}, provider.NotLost
	}
	p, why := provider.EvaluatePosition(l, h.Server, k, h.behind)
	if why != provider.NotLost {
		p = rescan(l.Mark, h, k, max(before, p.Reading))
	}
	return p, why
}

// rescan is the position at which a rescan begins.
func rescan(mark *time.Time, h Head, k provider.Kind, before int64) position {
	r := provider.RescanFrom(mark, h.Tx)
	return position{Header: provider.BeginHeader(h.Server, k, before), Rescan: &r}
}
