package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ledger holds what was used before a figure.
type ledger struct {
	stage    *stage
	conn     *pgx.Conn
	traffic  traffic
	sessions float64
	load     string
	used     usage
}

// bill is what a figure used.
type bill struct {
	requests, watched counts
	sessions          float64
	load              string
	used              usage
}

// open begins to count. What is dear to read is read first, so that it is in no figure.
func (s *stage) open(ctx context.Context) (l *ledger, err error) {
	l = &ledger{stage: s, load: load()}
	if l.conn, err = pgx.Connect(ctx, s.fleet.DSN); err != nil {
		return nil, err
	}
	if l.traffic, err = s.readTraffic(ctx); err == nil {
		l.sessions, err = l.readSessions(ctx)
	}
	if err == nil {
		l.used, err = s.used()
	}
	if err != nil {
		return nil, errors.Join(err, l.conn.Close(ctx))
	}
	return l, nil
}

// readSessions is how many sessions the database has had.
func (l *ledger) readSessions(ctx context.Context) (n float64, err error) {
	err = l.conn.QueryRow(ctx, "SELECT sessions::float8 FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n, err
}

// close ends the counting.
func (l *ledger) close(ctx context.Context) (b bill, err error) {
	defer func() { err = errors.Join(err, l.conn.Close(ctx)) }()
	used, err := l.stage.used()
	if err != nil {
		return b, err
	}
	b.used, b.load = used.since(l.used), l.load+" to "+load()
	sessions, err := l.readSessions(ctx)
	if err != nil {
		return b, err
	}
	b.sessions = sessions - l.sessions
	now, err := l.stage.readTraffic(ctx)
	b.requests, b.watched = now.requests.since(l.traffic.requests), now.watched.since(l.traffic.watched)
	return b, err
}

// rows are all that was used for each of n nodes.
func (b bill) rows(n int) []Row {
	rows := []Row{{
		Figure: "  CPU per node, all that follow", Measured: b.cpu(b.used.sum().Seconds(), n),
		Remarks: fmt.Sprintf("others on the machine %s; load %s", b.cpu(b.used[otherPart].Seconds(), n), b.load),
	}}
	for _, part := range b.used.order() {
		rows = append(rows, Row{Figure: "    " + part, Measured: b.cpu(b.used[part].Seconds(), n)})
	}
	return append(append(rows, b.requestRows("node", n)...), Row{
		Figure: "  events sent to watchers per node", Measured: perOne(b.watched.sum(""), n), Remarks: b.watched.each(n),
	}, Row{
		Figure: "  PostgreSQL sessions opened", Measured: Quantity{b.sessions, Times, true}, Remarks: "load " + b.load,
	})
}

// requestRows are the API requests for each of n.
func (b bill) requestRows(what string, n int) []Row {
	return []Row{
		{Figure: "  API requests per " + what, Measured: perOne(b.requests.sum(""), n), Remarks: b.requests.each(n)},
		{Figure: "  conflicts (409) per " + what, Measured: perOne(b.requests.sum(conflict), n)},
	}
}

func (b bill) cpu(seconds float64, n int) Quantity {
	return Quantity{seconds / float64(n), Seconds, true}
}

func perOne(all float64, n int) Quantity { return Quantity{all / float64(n), Times, true} }
