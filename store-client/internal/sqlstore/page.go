package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// rowKey is where a row lies in the store's order.
type rowKey struct{ tx, seq int64 }

func (p rowKey) before(q rowKey) bool { return p.tx < q.tx || p.tx == q.tx && p.seq < q.seq }

// page is one read of a feed.
type page struct {
	items  []item
	broken []provider.Document
	// last is the place of the last row read.
	last rowKey
	// full says that the read was cut short: more may follow.
	full bool
}

// page reads rows that can be seen at the target and were not delivered. Those
// of transactions that are certain to be the last of their numbers come first,
// each with a position of its own; those above come after them, with positions
// that let all above come again until the target is read to its end.
func (f *feed) page(ctx context.Context, conn *sql.Conn) (page, error) {
	query, args := f.pageSQL(*f.target)
	p, n, size := page{last: f.read}, 0, 0
	err := each(ctx, conn, query, args, func(scan func(...any) error) error {
		if size >= store.PageBytes {
			p.full = true
			return nil
		}
		var id string
		var doc []byte
		var at instant
		if err := scan(&id, &doc, &p.last.tx, &p.last.seq, &at); err != nil {
			return err
		}
		n, size = n+1, size+len(doc)
		pos := f.cursor.at(p.last.tx, p.last.seq, at.time())
		if p.last.tx >= f.target.Tx {
			f.parts++
			pos = f.cursor.beyond(*f.target, f.parts)
		}
		if r, err := decode(doc); err != nil {
			p.broken = append(p.broken, provider.Document{ID: id, Body: doc, Why: err})
		} else {
			p.items = append(p.items, item{rec: r, pos: pos, at: at.time()})
		}
		p.full = n == pageRows
		return nil
	})
	if err != nil {
		return page{}, fmt.Errorf("reading a page: %w", err)
	}
	return p, nil
}

func (f *feed) pageSQL(target Head) (string, []any) {
	tx, seq, at := columns(f.Kind)
	return f.news(fmt.Sprintf("id, doc, %s AS tx, %s AS seq, %s AS at", tx, seq, at), target, pageRows)
}

// countSQL counts what pageSQL would read, page by page.
func (f *feed) countSQL(target Head, limit int) (string, []any) {
	tx, seq, at := columns(f.Kind)
	query, args := f.news(fmt.Sprintf("%s AS tx, %s AS seq, %s AS at", tx, seq, at), target, limit)
	return "SELECT COUNT(*), MIN(waiting.at) FROM (" + query + ") AS waiting", args
}

// news selects the columns of the first rows, in the store's order, that can be
// seen at the target and lie after what was read and outside what the cursor
// has seen. The latter are two ranges: rows of transactions that were under way
// when the snapshot was taken, and rows of later ones.
func (f *feed) news(columns string, target Head, limit int) (string, []any) {
	q := newsQuery{feed: f, columns: columns, target: target, limit: limit}
	seen := f.cursor.Seen
	if seen == nil {
		return q.rows(f.read, nil), q.args
	}
	after := f.read
	if last := (rowKey{seen.Next - 1, math.MaxInt64}); after.before(last) {
		after = last
	}
	if len(seen.Running) == 0 {
		return q.rows(after, nil), q.args
	}
	query := "SELECT * FROM ((" + q.rows(f.read, seen.Running) + ") UNION ALL (" + q.rows(after, nil) + ")) AS news ORDER BY tx, seq LIMIT " + q.arg(limit)
	return query, q.args
}

// newsQuery is a query of a feed in the making.
type newsQuery struct {
	compiler
	feed    *feed
	columns string
	target  Head
	limit   int
}

// rows selects from one range: after a place, and of certain transactions if
// any are named.
func (q *newsQuery) rows(after rowKey, of []int64) string {
	tx, seq, at := columns(q.feed.Kind)
	where := []string{
		"(" + tx + ", " + seq + ") > (" + q.arg(after.tx) + ", " + q.arg(after.seq) + ")",
		tx + " < " + q.arg(q.target.next()),
	}
	if of != nil {
		where = append(where, tx+" = ANY("+q.arg(of)+"::bigint[])")
	}
	if shot := q.target.Shot; shot != nil && len(shot.Running) > 0 {
		where = append(where, tx+" <> ALL("+q.arg(shot.Running)+"::bigint[])")
	}
	where = append(where, q.selector(q.feed.selector))
	if r := q.feed.cursor.Rescan; r != nil {
		again := tx + " >= " + q.arg(r.Until) + " OR NOT is_finished"
		if since, ok := r.SinceTime(); ok {
			again += " OR " + at + " >= " + q.arg(q.feed.s.Dialect.Time(&since))
		}
		where = append(where, "("+again+")")
	}
	return fmt.Sprintf("SELECT %s FROM health_events WHERE %s ORDER BY %s, %s LIMIT %s",
		q.columns, strings.Join(where, " AND "), tx, seq, q.arg(q.limit))
}
