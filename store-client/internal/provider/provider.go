// Package provider is what all stores have in common: which records can be
// stored, how a batch of changes is decided, and the metrics.
package provider

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

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

// ErrUnusable marks errors of opening that do not end by waiting: a wrong address, a server
// that cannot keep what it acknowledged, a newer schema.
var ErrUnusable = errors.New("store is unusable")

// ErrForeign marks a database that holds something else than our records; it is an
// ErrUnusable.
var ErrForeign = fmt.Errorf("%w: it belongs to another application", ErrUnusable)

// Earlier is the refusal of a database that holds where, records of the earlier NVSentinel,
// which have the same names and another form.
func Earlier(database, where string) error {
	return fmt.Errorf("%w: %s in database %q belongs to the earlier NVSentinel or to another application, and is not changed. "+
		"Use a separate database (another name in the address), or rename the old one, see docs/tasks/migrate-from-nvsentinel.md",
		ErrForeign, where, database)
}

// NewerSchema is the refusal to use a store that a newer program has brought up to date.
func NewerSchema(version, known int) error {
	return fmt.Errorf("%w: the schema of the store has version %d, this program supports %d. "+
		"Install the program version that created the schema, or a newer one, or restore an older backup (docs/tasks/upgrade.md)",
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
		return fmt.Errorf("%w: the ID has %d bytes", ErrUnstorable, len(r.ID))
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
			return fmt.Errorf("%w: it contains U+0000 or invalid UTF-8", ErrUnstorable)
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

// form is an address of which it is certain which part is the password: its groups are
// the password and the options.
var form = regexp.MustCompile(`^[a-z+]+://` +
	`(?:(?:[^:/?#@\s%]|%[0-9A-Fa-f]{2})*(?::((?:[^:/?#@\s%]|%[0-9A-Fa-f]{2})*))?@)?` +
	`(?:(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.%]*\])(?::\d+)?(?:,(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]*\])(?::\d+)?)*` +
	`(?:/[^/?#@\s]*)?(?:\?([^?#@\s]*))?$`)

// errForm is all that can be reported about another one: it may contain the password.
var errForm = errors.New("the address must have the form PROVIDER://user:password@host:port/database?option=value. " +
	"In user and password, write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for # and %25 for %")

// Explain is an error about an address without its password and the values of its
// options; paths of files stay.
func Explain(err error, address string) error {
	parts := form.FindStringSubmatch(address)
	if parts == nil {
		return errForm
	}
	text := err.Error()
	if _, reason, found := strings.Cut(text, "`: "); found { // pgx repeats the address before it
		text = reason
	}
	for pair := range strings.SplitSeq(parts[2], "&") {
		name, value, _ := strings.Cut(pair, "=")
		for _, value := range spellings(value) {
			if strings.Contains(strings.ToLower(name), "password") {
				text = strings.ReplaceAll(text, value, "...")
			}
			text = strings.ReplaceAll(text, strconv.Quote(value), `"..."`)
		}
	}
	for _, password := range spellings(parts[1]) {
		if len(password) > 3 { // a shorter one would be shown by its absence
			text = strings.ReplaceAll(text, password, "...")
		}
	}
	return errors.New(text)
}

// spellings are a part as it is written and as it is meant.
func spellings(part string) []string {
	if part == "" {
		return nil
	}
	if plain, err := url.QueryUnescape(part); err == nil {
		return []string{part, plain}
	}
	return []string{part}
}

// ClearText is the warning about a store that is reached without TLS.
const ClearText = "store connection without TLS used on a network, records and the password can be read and changed in transit"

// OnNetwork reports whether a connection to a host leaves this machine: it is
// neither a Unix socket nor a loopback address.
func OnNetwork(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || strings.EqualFold(host, "localhost") {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// Metrics of a store.
type Metrics struct {
	Appends           *prometheus.CounterVec
	Conflicts         *prometheus.CounterVec
	Refusals          *prometheus.CounterVec
	Rescans           *prometheus.CounterVec
	Undecodable       *prometheus.CounterVec
	Lag               *prometheus.GaugeVec
	OldestTransaction *prometheus.GaugeVec
	Expired           prometheus.Counter
	Trimmed           prometheus.Counter
}

// NewMetrics registers a store's metrics; a nil registerer keeps them private.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Appends:     counter("nvsentinel_store_appends_total", "Records sent to the store, by result: appended, duplicate or refused.", "result"),
		Conflicts:   counter("nvsentinel_store_conflicts_total", "Batches of updates that were rejected because of a concurrent change, by writer.", "writer"),
		Refusals:    counter("nvsentinel_store_refused_updates_total", "Batches of updates that were rejected because of a field of another writer, an illegal transition, or a record that requires a newer version, by writer.", "writer"),
		Rescans:     counter("nvsentinel_store_feed_rescans_total", "Change feeds that lost their position and read the records again, by consumer and reason.", "consumer", "reason"),
		Undecodable: counter("nvsentinel_store_undecodable_records_total", "Stored documents that cannot be decoded and were skipped by a change feed or by a list (consumer list), by consumer. They become dead letters.", "consumer"),
		Lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_store_feed_lag_seconds",
			Help: "Age of the newest delivered change in seconds, or 0 if all changes are delivered, by consumer.",
		}, []string{"consumer"}),
		OldestTransaction: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_store_oldest_transaction_seconds",
			Help: "Time in seconds for which the oldest open transaction of any client has been seen on the database server, by consumer. Change feeds continue, but the server cannot vacuum.",
		}, []string{"consumer"}),
		Expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "nvsentinel_store_expired_records_total", Help: "Records that were deleted after their expiry."}),
		Trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_store_dropped_dead_letters_total", Help: "Dead letters that were deleted because those of their source exceeded the limit of number, size or age.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.Appends, m.Conflicts, m.Refusals, m.Rescans, m.Undecodable, m.Lag, m.OldestTransaction, m.Expired, m.Trimmed)
	}
	return m
}

// NotUpdated counts why an update failed, and returns the error with its context.
func (m *Metrics) NotUpdated(writer record.Writer, changes int, err error) error {
	switch {
	case errors.Is(err, store.ErrConflict):
		m.Conflicts.WithLabelValues(string(writer)).Inc()
	case errors.Is(err, record.ErrNotOwner), errors.Is(err, record.ErrIllegalTransition), errors.Is(err, store.ErrNewer):
		m.Refusals.WithLabelValues(string(writer)).Inc()
	}
	return fmt.Errorf("updating %d records: %w", changes, err)
}
