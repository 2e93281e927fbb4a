package sqlstore

import (
	"cmp"
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

func (r rowKey) before(q rowKey) bool { return r.tx < q.tx || r.tx == q.tx && r.seq < q.seq }

// page is one read of a feed.
type page struct {
	items  []item
	broken []provider.Document
	// last is the place of the last row read.
	last rowKey
	// full is true if the read was cut short: more may follow.
	full bool
}

// found is a row that a look shows; without an id it shows the head alone.
type found struct {
	id      sql.NullString
	doc     []byte
	tx, seq sql.NullInt64
	at      instant
}

// poll reads the head and the next page in one statement: what its snapshot shows
// is what can be seen at that head, and after a failover the head of one server is
// never used on another. Until the page before was the last one, the page is of the
// target that was read then.
func (f *feed) poll(ctx context.Context) (head Head, p page, err error) {
	if f.target == nil {
		f.read = rowKey{f.cursor.Tx, f.cursor.Seq}
	}
	p.last = f.read
	query, args := f.pollSQL(f.s.Dialect.HeadSQL)
	n, size := 0, 0
	err = each(ctx, f.s.db, query, args, func(scan func(...any) error) (err error) {
		if size >= store.PageBytes {
			p.full = true
			return nil
		}
		var r found
		head, err = f.s.Dialect.ReadHead(func(dest ...any) error { return scan(append(dest, &r.id, &r.doc, &r.tx, &r.seq, &r.at)...) })
		if err != nil || !r.id.Valid {
			return err
		}
		n, size = n+1, size+len(r.doc)
		p.full = n == pageRows
		f.add(&p, cmp.Or(f.target, &head), r)
		return nil
	})
	if err != nil {
		return Head{}, page{}, fmt.Errorf("reading a page: %w", err)
	}
	return head, p, nil
}

// add puts a row on a page. Rows of transactions that are certain to be the last of
// their numbers come first, each with a position of its own; those above come after
// them, with positions that let all above come again until the target is read to
// its end.
func (f *feed) add(p *page, target *Head, r found) {
	at := r.at.time()
	p.last = rowKey{r.tx.Int64, r.seq.Int64}
	pos := f.cursor.at(p.last.tx, p.last.seq, at)
	if p.last.tx >= target.Tx {
		f.parts++
		pos = f.cursor.beyond(*target, f.parts)
	}
	if rec, err := decode(r.doc); err != nil {
		p.broken = append(p.broken, provider.Document{ID: r.id.String, Body: r.doc, Why: err})
	} else {
		p.items = append(p.items, item{rec: rec, pos: pos, at: at})
	}
}

// pollSQL selects the head, beside each row of the page if there are any.
func (f *feed) pollSQL(head string) (string, []any) {
	tx, seq, at := columns(f.Kind)
	query, args := f.changesQuery(fmt.Sprintf("id, doc, %s AS tx, %s AS seq, %s AS at", tx, seq, at), f.target, pageRows)
	return "WITH head AS MATERIALIZED (" + head + ") SELECT * FROM head LEFT JOIN (" + query + ") AS news ON 1 = 1 ORDER BY tx, seq", args
}

// countSQL counts what would be read, page by page.
func (f *feed) countSQL(target Head, limit int) (string, []any) {
	tx, seq, at := columns(f.Kind)
	query, args := f.changesQuery(fmt.Sprintf("%s AS tx, %s AS seq, %s AS at", tx, seq, at), &target, limit)
	return "SELECT COUNT(*), MIN(waiting.at) FROM (" + query + ") AS waiting", args
}

// changesQuery selects the columns of the first rows, in the store's order, that can be
// seen at the target, which is that of the statement if it is nil, and lie after
// what was read and outside what the cursor has seen. The latter are two ranges: rows of transactions that were under way
// when the snapshot was taken, and rows of later ones.
func (f *feed) changesQuery(columns string, target *Head, limit int) (string, []any) {
	q := changesCompiler{feed: f, columns: columns, target: target, limit: limit}
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

// changesCompiler is a query of a feed in the making.
type changesCompiler struct {
	compiler
	feed    *feed
	columns string
	target  *Head
	limit   int
}

// rows selects from one range: after a place, and of certain transactions if
// any are named.
func (c *changesCompiler) rows(after rowKey, of []int64) string {
	tx, seq, at := columns(c.feed.Kind)
	where := []string{"(" + tx + ", " + seq + ") > (" + c.arg(after.tx) + ", " + c.arg(after.seq) + ")"}
	if c.target == nil {
		where = append(where, tx+" < (SELECT next FROM head)")
	} else {
		where = append(where, tx+" < "+c.arg(c.target.next()))
	}
	if of != nil {
		where = append(where, tx+" = ANY("+c.arg(of)+"::bigint[])")
	}
	if c.target != nil && c.target.Shot != nil && len(c.target.Shot.Running) > 0 {
		where = append(where, tx+" <> ALL("+c.arg(c.target.Shot.Running)+"::bigint[])")
	}
	where = append(where, c.selector(c.feed.selector))
	if r := c.feed.cursor.Rescan; r != nil {
		again := tx + " >= " + c.arg(r.Until) + " OR NOT is_finished"
		if since, ok := r.SinceTime(); ok {
			again += " OR " + at + " >= " + c.arg(c.feed.s.Dialect.Time(&since))
		}
		where = append(where, "("+again+")")
	}
	return fmt.Sprintf("SELECT %s FROM health_events WHERE %s ORDER BY %s, %s LIMIT %s",
		c.columns, strings.Join(where, " AND "), tx, seq, c.arg(c.limit))
}
