package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

const (
	// openFaults is how many faults are open in either history, historyNodes
	// over how many nodes the records spread.
	openFaults, historyNodes = 100, 1000
	// flat is how much slower the long history may be and still count as flat.
	flat = 1.5
)

// history measures what SQLite and PostgreSQL take over a long history of
// finished records, a short one and none; and MongoDB, if its stand-in is here.
func history(ctx context.Context, o Options) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "nvsentinel-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as a user of its own
		return nil, err
	}
	found, err := historyOf(ctx, o, "sqlite", func(name string) (cloner, error) {
		return openSQLite(filepath.Join(dir, name+".db"))
	})
	rows = append(rows, found...)
	if err != nil {
		return rows, err
	}
	server, err := pgtest.Start(ctx, pgtest.Options{Dir: filepath.Join(dir, "postgresql"), Durable: true})
	if err != nil {
		return rows, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	found, err = historyOf(ctx, o, "postgresql", func(name string) (cloner, error) {
		address, err := server.CreateDatabase(ctx, name)
		if err != nil {
			return nil, err
		}
		return openPostgreSQL(ctx, address)
	})
	rows = append(rows, found...)
	if err != nil || !o.wants(Stores) || o.Sizes.MongoDB == 0 {
		return rows, err
	}
	found, err = mongoStore(ctx, o, filepath.Join(dir, "mongodb"))
	return append(rows, found...), err
}

// cloner is a database that a history is made in.
type cloner interface {
	// dsn is the store's address.
	dsn() string
	// clone copies the record id n times with ids, places and nodes of their own.
	clone(ctx context.Context, id string, n int) error
	close(ctx context.Context) error
}

// historyOf measures one provider.
func historyOf(ctx context.Context, o Options, name string, open func(name string) (cloner, error)) (rows []Row, err error) {
	sizes := []int{o.Sizes.Long}
	if o.wants(History) {
		sizes = append(sizes, o.Sizes.Short)
	}
	if o.wants(Stores) {
		sizes = append(sizes, 0)
	}
	got, err := chronicles(ctx, o, name, sizes, open)
	if err != nil {
		return nil, err
	}
	if o.wants(History) {
		rows = append(rows, historyRows(o, name, got[0], got[1])...)
	}
	if o.wants(Stores) {
		rows = append(rows, storeRows(o, name, o.Sizes.Long, [2]times{got[0], got[len(got)-1]})...)
	}
	return rows, nil
}

func historyRows(o Options, name string, long, short times) []Row {
	row := func(figure string, of func(times) time.Duration) Row {
		return Row{
			Figure: name + ": " + figure, Measured: seconds(of(long)), Baseline: seconds(of(short)), Target: Target{Within: flat},
			Note: fmt.Sprintf("p50 of %d; ours: %d records, floor: %d records", o.Sizes.Queries, o.Sizes.Long, o.Sizes.Short),
		}
	}
	return []Row{
		row("append to feed", func(t times) time.Duration { return t.feed }),
		row("open work of all nodes", func(t times) time.Duration { return t.open }),
		row("open work of one node", func(t times) time.Duration { return t.node }),
	}
}

// chronicles makes histories of the given sizes and measures them in turns, so
// that whatever else the machine does falls on all alike.
func chronicles(ctx context.Context, o Options, name string, sizes []int, open func(name string) (cloner, error)) (out []times, err error) {
	var all []*chronicle
	for _, size := range sizes {
		began := time.Now()
		h, err := newChronicle(ctx, size, func() (cloner, error) { return open(fmt.Sprintf("records%d", size)) })
		if h != nil {
			defer func() { err = errors.Join(err, h.close(ctx)) }()
		}
		if err != nil {
			return nil, fmt.Errorf("making a history of %d records in %s: %w", size, name, err)
		}
		o.log("made %s hold %d records in %s", name, size, time.Since(began).Round(time.Second))
		all = append(all, h)
	}
	for i := range o.Sizes.Queries {
		for _, h := range all {
			err := h.measure(ctx, i)
			if err == nil && o.wants(Stores) && i%batchEvery == 0 {
				err = h.measureBatch(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", name, err)
			}
		}
	}
	for _, h := range all {
		out = append(out, h.medians())
	}
	return out, nil
}

// chronicle is a store with a history, some open faults, and a feed whose
// position is behind all of them.
type chronicle struct {
	db    cloner
	store store.Store
	feed  store.Feed
	pen   *pen
	next  int

	one, hundred, appended, swap, open, node []time.Duration
}

// newChronicle makes a history of size records; what it returns is to be
// closed, also after an error.
func newChronicle(ctx context.Context, size int, open func() (cloner, error)) (*chronicle, error) {
	db, err := open()
	if err != nil {
		return nil, err
	}
	h := &chronicle{db: db, pen: newPen()}
	if h.store, err = storeopen.Open(ctx, db.dsn(), storeopen.Options{SingleHost: true}); err != nil {
		return h, err
	}
	template, err := h.begin(ctx)
	if err != nil {
		return h, err
	}
	if size == 0 {
		return h, nil
	}
	return h, db.clone(ctx, template, size)
}

func (h *chronicle) close(ctx context.Context) error {
	var problems []error
	if h.feed != nil {
		problems = append(problems, h.feed.Close())
	}
	if h.store != nil {
		problems = append(problems, h.store.Close())
	}
	return errors.Join(append(problems, h.db.close(context.WithoutCancel(ctx)))...)
}

// begin makes the open faults and a finished record, whose id it returns, and
// leads the feed behind them.
func (h *chronicle) begin(ctx context.Context) (template string, err error) {
	for range openFaults {
		r, err := h.append(ctx)
		if err != nil {
			return "", err
		}
		if err := h.writeVerdict(ctx, r, record.Matched); err != nil {
			return "", err
		}
	}
	r, err := h.append(ctx)
	if err != nil {
		return "", err
	}
	if err := h.writeVerdict(ctx, r, record.NoRuleMatched); err != nil {
		return "", err
	}
	// The clones bear the template's transaction; the position has to be behind it.
	if _, err := h.append(ctx); err != nil {
		return "", err
	}
	if h.feed, err = h.store.Feed(ctx, "bench", record.ProcessableHealthEventInserts()); err != nil {
		return "", err
	}
	for range openFaults + 2 {
		if err := h.receive(ctx); err != nil {
			return "", err
		}
	}
	return r.ID, nil
}

// fault is one more fault.
func (h *chronicle) fault() record.Record {
	node := fmt.Sprintf("gpu-%d", h.next%historyNodes)
	h.next++
	return stored(h.pen.fault(node, 0, "79", protos.RecommendedAction_RESTART_VM), &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(node)}})
}

// append stores one more fault and returns it.
func (h *chronicle) append(ctx context.Context) (record.Record, error) {
	r := h.fault()
	results, err := h.store.Append(ctx, []record.Record{r})
	if err == nil && results[0] != store.Appended {
		err = fmt.Errorf("appending a record: %s", results[0])
	}
	return r, err
}

// writeVerdict writes a verdict as fault-quarantine would.
func (h *chronicle) writeVerdict(ctx context.Context, r record.Record, reason record.Reason) error {
	_, err := h.store.Update(ctx, record.FaultQuarantine, []store.Change{verdict(r, reason)})
	return err
}

func verdict(r record.Record, reason record.Reason) store.Change {
	now := time.Now().UTC()
	change := store.Change{ID: r.ID, Status: record.Status{QuarantineVerdict: &record.Verdict{Reason: reason, At: now}}}
	if reason == record.Matched {
		change.Status.NodeQuarantined, change.Status.Session = record.Quarantined, r.ID
		change.Status.Faults = []record.Fault{{Key: r.ID}}
	} else {
		expire := now.Add(30 * 24 * time.Hour)
		change.ExpireAt = &expire
	}
	return change
}

func (h *chronicle) receive(ctx context.Context) error {
	_, position, err := h.feed.Next(ctx)
	if err != nil {
		return err
	}
	return h.feed.Commit(ctx, position)
}

// measure takes one of each time. What it appends is finished again.
func (h *chronicle) measure(ctx context.Context, i int) error {
	began := time.Now()
	r, err := h.append(ctx)
	h.one = append(h.one, time.Since(began))
	if err == nil {
		err = h.receive(ctx)
	}
	h.appended = append(h.appended, time.Since(began))
	if err != nil {
		return err
	}
	began = time.Now()
	err = h.writeVerdict(ctx, r, record.NoRuleMatched)
	h.swap = append(h.swap, time.Since(began))
	if err != nil {
		return err
	}
	all, err := h.list(ctx, "")
	if err != nil {
		return err
	}
	one, err := h.list(ctx, fmt.Sprintf("gpu-%d", i%historyNodes))
	h.open, h.node = append(h.open, all), append(h.node, one)
	return err
}

func (h *chronicle) medians() times {
	t := times{
		one: quantile(h.one, 0.5), feed: quantile(h.appended, 0.5), swap: quantile(h.swap, 0.5),
		open: quantile(h.open, 0.5), node: quantile(h.node, 0.5),
	}
	if len(h.hundred) > 0 {
		t.hundred = quantile(h.hundred, 0.5)
	}
	return t
}

// list runs the queries of fault-quarantine: what is to be evaluated, and what is open.
func (h *chronicle) list(ctx context.Context, node string) (time.Duration, error) {
	began := time.Now()
	for _, selector := range []record.Selector{record.BacklogOfNode(node), record.OpenOfNode(node)} {
		if _, err := h.store.List(ctx, store.Query{Selector: selector}); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
