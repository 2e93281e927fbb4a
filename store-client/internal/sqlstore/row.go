package sqlstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// maxKey bounds an indexed string, in bytes: the index entries of PostgreSQL
// hold less than 2704 bytes.
const maxKey = 200

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
	{"digest", func(_ *Dialect, r row) any { return record.Content(r.rec) }},
	{"created_at", func(d *Dialect, r row) any { return d.Time(&r.rec.CreatedAt) }},
	{"node", func(_ *Dialect, r row) any { return key(r.rec.Event.NodeName) }},
	{"agent", func(_ *Dialect, r row) any { return r.rec.Event.Agent }},
	{"strategy", func(_ *Dialect, r row) any { return string(r.rec.Event.ProcessingStrategy) }},
	{"is_healthy", func(_ *Dialect, r row) any { return r.rec.Event.IsHealthy }},
	{"seq", func(_ *Dialect, r row) any { return provider.SortableSeq(r.rec.Seq) }},
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
		return fmt.Errorf("%w: %w", provider.ErrUnstorable, err)
	}
	r.doc = string(doc)
	return nil
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
