package sqlstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// maxID bounds an id in bytes and maxKey an indexed string: the index entries
// of PostgreSQL hold less than 2704 bytes.
const (
	maxID  = 512
	maxKey = 200
)

// errUnstorable is a record that no store can give back as it was handed over.
var errUnstorable = errors.New("record cannot be stored as it is")

// row is a record with its place in the store's order.
type row struct {
	rec     record.Record
	doc     string
	tx, seq int64
	at      time.Time
}

// column is one plain column computed from a row.
type column struct {
	name  string
	value func(d *Dialect, r row) any
}

// insertColumns are written once; the insert position is also the first
// change position.
var insertColumns = []column{
	{"id", func(_ *Dialect, r row) any { return r.rec.ID }},
	{"append_seq", func(_ *Dialect, r row) any { return r.rec.Append }},
	{"insert_tx", func(_ *Dialect, r row) any { return r.tx }},
	{"stored_at", func(d *Dialect, r row) any { return d.Time(&r.at) }},
	{"digest", func(_ *Dialect, r row) any { return record.Digest(r.rec.Event) }},
	{"created_at", func(d *Dialect, r row) any { return d.Time(&r.rec.CreatedAt) }},
	{"node", func(_ *Dialect, r row) any { return key(r.rec.Event.NodeName) }},
	{"agent", func(_ *Dialect, r row) any { return r.rec.Event.Agent }},
	{"strategy", func(_ *Dialect, r row) any { return string(r.rec.Event.ProcessingStrategy) }},
	{"is_healthy", func(_ *Dialect, r row) any { return r.rec.Event.IsHealthy }},
	{"seq", func(_ *Dialect, r row) any { return sortableSeq(r.rec.Seq) }},
	{"seq_epoch", func(_ *Dialect, r row) any { return key(r.rec.SeqEpoch) }},
}

// changeColumns are written by every update.
var changeColumns = []column{
	{"change_tx", func(_ *Dialect, r row) any { return r.tx }},
	{"change_seq", func(_ *Dialect, r row) any { return r.seq }},
	{"changed_at", func(d *Dialect, r row) any { return d.Time(&r.at) }},
	{"revision", func(_ *Dialect, r row) any { return r.rec.Revision }},
	{"session", func(_ *Dialect, r row) any { return key(r.rec.Status.Session) }},
	{"node_quarantined", func(_ *Dialect, r row) any { return string(r.rec.Status.NodeQuarantined) }},
	{"eviction", func(_ *Dialect, r row) any { return string(r.rec.Status.UserPodsEvictionStatus.Status) }},
	{"verdict", func(_ *Dialect, r row) any { return string(r.rec.Reason()) }},
	{"remediated", func(_ *Dialect, r row) any { return record.Remediated(r.rec.Status) }},
	{"is_repaired", func(_ *Dialect, r row) any { return r.rec.Status.Remediation != nil }},
	{"is_open", func(_ *Dialect, r row) any { return record.Open(r.rec) }},
	{"is_finished", func(_ *Dialect, r row) any { return record.Finished(r.rec) }},
	{"expire_at", func(d *Dialect, r row) any { return d.Time(r.rec.ExpireAt) }},
	{"doc", func(_ *Dialect, r row) any { return r.doc }},
}

// encode gives the row's document.
func (r *row) encode() error {
	doc, err := json.Marshal(r.rec)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnstorable, err)
	}
	r.doc = string(doc)
	return nil
}

// checkStorable refuses what a store would change or reject: PostgreSQL
// cannot hold U+0000, and invalid UTF-8 becomes U+FFFD.
func checkStorable(r record.Record) error {
	if r.ID == "" || len(r.ID) > maxID {
		return fmt.Errorf("%w: id of %d bytes", errUnstorable, len(r.ID))
	}
	doc, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnstorable, err)
	}
	for rest := doc; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return nil
		}
		// encoding/json writes an escaped U+FFFD only for invalid UTF-8.
		if bytes.HasPrefix(rest[i:], []byte(`\u0000`)) || bytes.HasPrefix(rest[i:], []byte(`\ufffd`)) {
			return fmt.Errorf("%w: it holds U+0000 or invalid UTF-8", errUnstorable)
		}
		rest = rest[i+2:]
	}
}

// key is an indexed string: long values are replaced by their hash, which
// keeps equality and fits an index.
func key(s string) string {
	if len(s) <= maxKey {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// sortableSeq orders as text as the counter does as a number: uint64 fits no
// integer column.
func sortableSeq(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return strings.Repeat("0", 20-len(s)) + s
}

// storable is s without what a text column cannot hold.
func storable(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
