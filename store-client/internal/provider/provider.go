// Package provider is what all stores have in common: which records can be
// stored, how a batch of changes is decided, and the metrics.
package provider

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// OperationTimeout bounds every call to the database, so that a connection
// that neither answers nor breaks cannot hold a service for ever.
const OperationTimeout = 30 * time.Second

// Never is later than every time that a record bears.
var Never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// maxID bounds an id in bytes.
const maxID = 512

// ErrUnusable marks errors of opening that waiting does not mend: a wrong
// address, a server that cannot keep what it acknowledged, a newer schema.
var ErrUnusable = errors.New("store is unusable")

// ErrForeign marks a database that holds something else than our records; it is an
// ErrUnusable.
var ErrForeign = fmt.Errorf("%w: it is not ours", ErrUnusable)

// Earlier is the refusal of a database that holds where, records of the earlier
// NVSentinel, whose names are those of ours and whose form is another.
func Earlier(database, where string) error {
	return fmt.Errorf("%w: %s in database %q is that of the earlier NVSentinel, or somebody else's, and is left as it is. "+
		"Either give this suite a database of its own (another name in the address), or put the old one aside under another name; docs/coming-from-nvsentinel.md has both",
		ErrForeign, where, database)
}

// NewerSchema is the refusal to use a store that a newer program has brought up to date.
func NewerSchema(version, known int) error {
	return fmt.Errorf("%w: the schema of the store has version %d, this program knows %d; "+
		"install the version of the program that made it, or a newer one, or restore a backup from before (docs/upgrade.md)",
		store.ErrNewer, version, known)
}

// ErrUnstorable is a record that no store can give back as it was handed over.
var ErrUnstorable = errors.New("record cannot be stored as it is")

// buffers are what Storable encodes into.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Storable refuses what a store would change or reject: PostgreSQL
// cannot hold U+0000, and invalid UTF-8 becomes U+FFFD.
func Storable(r record.Record) error {
	if r.ID == "" || len(r.ID) > maxID {
		return fmt.Errorf("%w: id of %d bytes", ErrUnstorable, len(r.ID))
	}
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	doc, err := record.AppendJSON((*buffer)[:0], r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	*buffer = doc
	return storableJSON(doc)
}

// storableJSON refuses a document, as package json wrote it, whose text no store
// would give back.
func storableJSON(doc []byte) error {
	for rest := doc; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return nil
		}
		// package json writes an escaped U+FFFD only for invalid UTF-8.
		if bytes.HasPrefix(rest[i:], []byte(`\u0000`)) || bytes.HasPrefix(rest[i:], []byte(`\ufffd`)) {
			return fmt.Errorf("%w: it holds U+0000 or invalid UTF-8", ErrUnstorable)
		}
		rest = rest[i+2:]
	}
}

// SortableSeq orders as text as the counter does as a number: uint64 fits no
// integer column.
func SortableSeq(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return strings.Repeat("0", 20-len(s)) + s
}

// Text is s without what a text column cannot hold.
func Text(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
