package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// errMoved is the error of a commit into a file that is not at its path any more.
var errMoved = errors.New("the database file was replaced or removed during a transaction, which is repeated in the new file")

// connector opens connections that know their file. SQLite goes on with a file
// that was replaced, by a backup for example, or removed: what it acknowledges
// then is gone.
type connector struct {
	driver    driver.Driver
	dsn, path string
	// made means that the file existed once: it is not created again.
	made *atomic.Bool
}

// open is a database whose connections end with the file they opened.
func open(dsn, path string) (*sql.DB, error) {
	plain, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{plain.Driver(), dsn, path, new(atomic.Bool)}), plain.Close()
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	before, err := os.Stat(c.path)
	if err != nil && c.made.Load() {
		return nil, fmt.Errorf("the database file is missing: %w", err)
	}
	inner, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	known, ok := inner.(fullConn)
	file, err := os.Stat(c.path)
	switch {
	case !ok:
		err = fmt.Errorf("connecting to SQLite: a %T lacks required functions", inner)
	case err == nil && before != nil && !os.SameFile(before, file):
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	c.made.Store(true)
	return &conn{known, c.path, file}, nil
}

// fullConn is what package sql uses of a connection.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is a connection to a file.
type conn struct {
	fullConn
	path string
	file os.FileInfo
}

// there reports whether the file is still at its path.
func (c *conn) there() bool {
	now, err := os.Stat(c.path)
	return err == nil && os.SameFile(now, c.file)
}

// ResetSession implements driver.SessionResetter: it is asked before a connection
// is used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if !c.there() {
		return driver.ErrBadConn
	}
	return c.fullConn.ResetSession(ctx)
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return transaction{tx, c}, nil
}

// transaction is one in a file.
type transaction struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx; it promises nothing about a file that is gone.
func (t transaction) Commit() error {
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	if !t.conn.there() {
		return errMoved
	}
	return nil
}
