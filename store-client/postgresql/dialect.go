package postgresql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

// home names the server and database whose transaction numbers rows bear; a
// dump restored elsewhere brings numbers that mean nothing there.
const home = `(SELECT system_identifier FROM pg_control_system()) || '/' ||
(SELECT oid FROM pg_database WHERE datname = current_database())`

// history names what writes go to: home, the timeline, which changes when another
// server takes over or an older state is restored, and the table's file, which
// changes when it was emptied or restored under the same name: its rows then bear
// numbers of long ago.
const history = home + ` || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || pg_relation_filenode('health_events')`

// queryHead reads the horizon: every transaction numbered below the oldest one
// still running has ended; and which of those above have.
const queryHead = `SELECT ` + history + `,
pg_snapshot_xmin(shot)::text::bigint, clock_timestamp(), pg_snapshot_xmax(shot)::text::bigint AS next,
(SELECT string_agg(tx::text, ' ' ORDER BY tx) FROM pg_snapshot_xip(shot) AS tx)
FROM pg_current_snapshot() AS shot`

// queryHolder names the oldest transaction under way, of any database of the
// server: a session's, a prepared one, or what a replication slot holds.
const queryHolder = `SELECT who FROM (
SELECT age(backend_xid) AS age, format('process %s of user %s in database %s, begun %s', pid, usename, datname, COALESCE(xact_start::text, 'at a time that this user may not see')) AS who
FROM pg_stat_activity WHERE backend_xid IS NOT NULL
UNION ALL SELECT age(transaction), format('prepared transaction %L of user %s in database %s, prepared %s', gid, owner, database, prepared) FROM pg_prepared_xacts
) AS held ORDER BY age DESC LIMIT 1`

// queryReserve numbers the transaction, reserves places, and wakes the feeds when
// it commits. synchronous_commit is set again, for this transaction, because a
// pooler may hand over a session with other settings.
const queryReserve = `SELECT ` + history + `, pg_current_xact_id()::text::bigint, clock_timestamp(),
(SELECT string_agg(concat(pg_notify('` + channel + `', cause)), '') FROM unnest($3::text[]) AS cause), set_config('synchronous_commit', $2, true),
(SELECT string_agg(nextval('health_event_places')::text, ' ') FROM generate_series(1, $1::int))`

func dialect(conf *pgx.ConnConfig, cfg sqlstore.Config) sqlstore.Dialect {
	return sqlstore.Dialect{
		Name:       "postgresql",
		ForUpdate:  " FOR UPDATE",
		SkipLocked: " FOR UPDATE SKIP LOCKED",
		InsertRows: 500,
		Arrays:     true,
		Joint: &sqlstore.Joint{
			Places:  [3]string{"pg_current_xact_id()::text::bigint", "nextval('health_event_places')", "clock_timestamp()"},
			Effects: "concat(pg_notify('" + channel + "', rows.cause), set_config('synchronous_commit', '" + conf.RuntimeParams["synchronous_commit"] + "', true))",
			Refused: refused,
		},
		Time: func(t *time.Time) any {
			if t == nil {
				return nil
			}
			return *t
		},
		Reserve: func(ctx context.Context, tx *sql.Tx, n int, causes []sqlstore.Cause) (sqlstore.Reservation, error) {
			output := make([]string, len(causes))
			for i, c := range causes {
				output[i] = c.String()
			}
			return reserve(tx.QueryRowContext(ctx, queryReserve, n, conf.RuntimeParams["synchronous_commit"], output))
		},
		HeadSQL:  queryHead,
		ReadHead: head,
		Holder: func(ctx context.Context, q sqlstore.Queryer) (string, error) {
			var holder string
			err := q.QueryRowContext(ctx, queryHolder).Scan(&holder)
			if errors.Is(err, sql.ErrNoRows) {
				return "it has just ended", nil
			}
			return holder, err
		},
		Adopt: adopt,
		Wake: func(ctx context.Context, notify func(...sqlstore.Cause)) {
			listen(ctx, conf, cfg, notify)
		},
	}
}

// refused reports whether the server answered a statement with an error, or never saw it.
func refused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" || errors.Is(err, driver.ErrBadConn)
}

func head(scan func(...any) error) (sqlstore.Head, error) {
	var h sqlstore.Head
	var next int64
	var running sql.NullString
	if err := scan(&h.Server, &h.Tx, &h.At, &next, &running); err != nil || next == h.Tx {
		return h, err
	}
	h.Shot = &sqlstore.Snapshot{Next: next}
	for text := range strings.FieldsSeq(running.String) {
		tx, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return h, fmt.Errorf("reading the snapshot: %w", err)
		}
		h.Shot.Running = append(h.Shot.Running, tx)
	}
	return h, nil
}

func reserve(row *sql.Row) (sqlstore.Reservation, error) {
	var st sqlstore.Reservation
	var notified, commit any
	var places string
	err := row.Scan(&st.Server, &st.Tx, &st.At, &notified, &commit, &places)
	if err != nil {
		return st, err
	}
	for place := range strings.FieldsSeq(places) {
		seq, err := strconv.ParseInt(place, 10, 64)
		if err != nil {
			return st, fmt.Errorf("reading a log position: %w", err)
		}
		st.Seqs = append(st.Seqs, seq)
	}
	return st, nil
}

// adopt takes over a database restored from another server: its rows' numbers
// become 0, before every transaction here, and keep their sequence. Positions
// name their server, so consumers read again from their low-water marks.
func adopt(ctx context.Context, db *sql.DB) error {
	var same bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM store_home WHERE home = "+home+")").Scan(&same)
	if err != nil {
		return fmt.Errorf("reading the identity of the database: %w", err)
	}
	if same {
		return nil
	}
	return locked(ctx, db, func(tx *sql.Tx) error {
		var old, now string
		err := tx.QueryRowContext(ctx, "SELECT COALESCE((SELECT home FROM store_home), ''), "+home).Scan(&old, &now)
		if err != nil || old == now {
			return err
		}
		for _, step := range []string{
			"LOCK TABLE health_events IN SHARE ROW EXCLUSIVE MODE",
			"UPDATE health_events SET insert_tx = 0, change_tx = 0",
			"DELETE FROM store_home",
			"INSERT INTO store_home (home) VALUES (" + home + ")",
		} {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return fmt.Errorf("adopting the database of %q: %w", old, err)
			}
		}
		return nil
	})
}

// listen wakes at every notification. After a lost connection it wakes too:
// what was notified meanwhile was not heard.
func listen(ctx context.Context, conf *pgx.ConnConfig, cfg sqlstore.Config, notify func(...sqlstore.Cause)) {
	for ctx.Err() == nil {
		err := hear(ctx, conf, notify)
		if ctx.Err() != nil {
			return
		}
		cfg.Log.Warn("notifications not received, change feeds polling meanwhile", "error", err)
		notify(sqlstore.Anything)
		retry.Sleep(ctx, cfg.Clock, time.Second)
	}
}

// silence is how long the listener waits before it asks whether its connection
// still lives.
const silence = 30 * time.Second

func hear(ctx context.Context, conf *pgx.ConnConfig, notify func(...sqlstore.Cause)) error {
	conn, err := pgx.ConnectConfig(ctx, conf.Copy())
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	notify(sqlstore.Anything)
	for {
		quiet, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			notify(sqlstore.ParseCause(n.Payload))
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			alive, cancel := context.WithTimeout(ctx, silence)
			err := conn.Ping(alive)
			cancel()
			if err != nil {
				return fmt.Errorf("checking the connection: %w", err)
			}
		default:
			return fmt.Errorf("waiting for a notification: %w", err)
		}
	}
}
