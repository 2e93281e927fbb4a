package postgresql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Appender appends with an account that may do nothing else (see
// roles/append_role.sql): functions of the database compute a record's place,
// time and transaction, and refuse a status.
type Appender struct {
	db      *sql.DB
	metrics *provider.Metrics
}

var (
	_ store.Appender   = (*Appender)(nil)
	_ store.Identified = (*Appender)(nil)
)

// OpenAppender connects to the database at dsn for appending. It makes no tables
// and waits for a service that does.
func OpenAppender(ctx context.Context, dsn string, cfg sqlstore.Config) (*Appender, error) {
	p, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := p.open(p.limits.appender())
	if err := checkAppender(ctx, db, p.unsafe, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
	}
	return &Appender{db, cfg.Metrics}, nil
}

// checkAppender says whether the account can append, and warns of one that can
// do more.
func checkAppender(ctx context.Context, db *sql.DB, unsafe bool, cfg sqlstore.Config) error {
	if err := checkServer(ctx, db, unsafe); err != nil {
		return err
	}
	var may, more bool
	err := db.QueryRowContext(ctx, `SELECT COALESCE(has_function_privilege(to_regprocedure('append_health_events(text[],text[])'), 'EXECUTE'), false),
COALESCE(has_table_privilege(to_regclass('health_events'), 'UPDATE'), false)`).Scan(&may, &more)
	if err != nil {
		return fmt.Errorf("reading what the account may do: %w", err)
	}
	if !may {
		return errors.New("the account may not append: has a service made the tables, and has append_role.sql been run since?")
	}
	if more {
		cfg.Log.Warn("the account that only has to append may also change records: give this connector the one of append_role.sql")
	}
	return nil
}

// Append implements store.Appender.
func (a *Appender) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	return provider.Append(ctx, a.metrics, records, a.insert)
}

// Server implements store.Identified.
func (a *Appender) Server(ctx context.Context) (server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if err := a.db.QueryRowContext(ctx, "SELECT "+history).Scan(&server); err != nil {
		return "", fmt.Errorf("asking for the server: %w", err)
	}
	return server, nil
}

// AppendTo implements store.Identified. The server is asked for just before.
func (a *Appender) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	now, err := a.Server(ctx)
	if err == nil {
		err = provider.Moved(server, now)
	}
	if err != nil {
		return nil, now, fmt.Errorf("appending %d records: %w", len(records), err)
	}
	results, err := a.Append(ctx, records)
	return results, now, err
}

// insert appends records of different ids, in one statement.
func (a *Appender) insert(ctx context.Context, records []record.Record) (map[string]provider.Content, error) {
	if len(records) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	docs, digests := make([]string, len(records)), make([]string, len(records))
	for i, r := range records {
		r.Append, r.Revision = 0, 0
		doc, err := record.AppendJSON(nil, r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", provider.ErrUnstorable, err)
		}
		docs[i], digests[i] = string(doc), record.Content(r)
	}
	rows, err := a.db.QueryContext(ctx, "SELECT stored_id, stored_digest, is_fresh FROM append_health_events($1::text[], $2::text[])", docs, digests)
	if err != nil {
		return nil, fmt.Errorf("inserting: %w", err)
	}
	defer rows.Close()
	stored := make(map[string]provider.Content, len(records))
	for rows.Next() {
		var id string
		var c provider.Content
		if err := rows.Scan(&id, &c.Digest, &c.Fresh); err != nil {
			return nil, fmt.Errorf("inserting: %w", err)
		}
		stored[id] = c
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("inserting: %w", err)
	}
	if len(stored) != len(records) {
		return nil, errors.New("a record expired while it was appended again")
	}
	return stored, nil
}

// Dead implements store.Appender. The account keeps letters of one source, that of all
// connectors: the node of one is the first part of its id.
func (a *Appender) Dead(ctx context.Context, deadLetter store.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if source, node, ok := strings.Cut(deadLetter.Source, "/"); ok && source == store.Connectors {
		deadLetter.Source, deadLetter.ID = source, node+"/"+deadLetter.ID
	}
	_, err := a.db.ExecContext(ctx, "SELECT keep_dead_letter($1, $2, $3, $4)",
		provider.Text(deadLetter.Source), provider.Text(deadLetter.ID), provider.Text(deadLetter.Reason), deadLetter.Body)
	if err != nil {
		return fmt.Errorf("keeping dead letter %q of %s: %w", deadLetter.ID, deadLetter.Source, err)
	}
	return nil
}

// Ping implements store.Appender.
func (a *Appender) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if err := a.db.PingContext(ctx); err != nil {
		return fmt.Errorf("reaching the store: %w", err)
	}
	return nil
}

// Close implements store.Appender.
func (a *Appender) Close() error {
	if err := a.db.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}
