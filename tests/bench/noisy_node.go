package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
)

const (
	// noiseTick is how often the noisy node sends what has come due, maxDue how
	// much of it at most.
	noiseTick, maxDue = 10 * time.Millisecond, 2000
	// fatalEvery is how rare a fatal fault is among its events.
	fatalEvery = 1000
	// noiseGPUs and noiseCodes are how many GPUs and codes its other events have. A
	// new code of a GPU is a new fault, which no quota leaves out for a minute.
	noiseGPUs, noiseCodes = 8, 50
)

// acknowledgedEvent is an event that was acknowledged: its id, and which fault it reports.
type acknowledgedEvent struct {
	id    string
	fault int
}

// shout has the noisy node report at a fixed rate until ctx ends. What its
// connector refuses is counted and not sent again.
func (n *noise) shout(ctx context.Context) error {
	tick := time.NewTicker(noiseTick)
	defer tick.Stop()
	began, sent := time.Now(), 0
	defer func() { n.shouted = time.Since(began) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due := min(maxDue, int(time.Since(began).Seconds()*float64(n.o.Sizes.NoiseRate))-sent)
		if due == 0 {
			continue
		}
		if err := n.report(context.WithoutCancel(ctx), sent, due); err != nil { // what was sent is answered, so that it can be counted
			return err
		}
		sent += due
	}
}

// report reports so many events of the noisy node, the first of which has a number.
func (n *noise) report(ctx context.Context, first, count int) error {
	batch, fresh, fatal := &protos.HealthEvents{Version: 1}, make([]acknowledgedEvent, 0, count), false
	for i := first; i < first+count; i++ {
		e, fault := n.murmur(i)
		batch.Events, fresh = append(batch.Events, e), append(fresh, acknowledgedEvent{e.GetId(), fault})
		fatal = fatal || e.GetIsFatal()
	}
	published := time.Now()
	_, err := n.source.clients[0].HealthEventOccurredV1(ctx, batch, grpc.WaitForReady(true))
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		n.refused += count
		return nil
	case err != nil:
		return fmt.Errorf("reporting %d events of the noisy node: %w", count, err)
	}
	n.acknowledged = append(n.acknowledged, fresh...)
	if fatal && n.failed.IsZero() {
		n.failed = published
	}
	return nil
}

// firstFatal is the number of the first fatal event: one by which the node is beyond
// the quota, if it has one.
func (n *noise) firstFatal() int { return n.o.Sizes.NoiseQuota + 20 }

// murmur is one event of the noisy node, and which fault it reports; no two events are
// alike in their text.
func (n *noise) murmur(i int) (*protos.HealthEvent, int) {
	const faults = noiseGPUs * noiseCodes
	if past := i - n.firstFatal(); past >= 0 && past%fatalEvery == 0 {
		gpu := past / fatalEvery % noiseGPUs
		return n.pen.fault(noiseNode, gpu, "95", protos.RecommendedAction_CONTACT_SUPPORT), faults + gpu
	}
	code := strconv.Itoa(1000 + i/noiseGPUs%noiseCodes)
	e := n.pen.fault(noiseNode, i%noiseGPUs, code, protos.RecommendedAction_NONE)
	e.IsFatal, e.Message = false, fmt.Sprintf("%s, event %d", e.GetMessage(), i)
	return e, i % faults
}

// remains is what is left of the noisy node's events.
type remains struct {
	// stored are in the store, missing are not, and counted is how many of the missing the
	// gateway counted.
	stored, missing, counted int
	// rows is how large the node's rows are, table the whole table with its indexes.
	rows, table int64
}

// tally counts the noisy node's events.
type tally struct {
	// stored are in the store, without the one that introduced the connector, waiting have
	// no verdict there; counted is how many the gateway has counted instead of storing them.
	stored, waiting, counted int
}

func (n *noise) counts(ctx context.Context, conn *pgx.Conn) (t tally, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*) - 1, count(*) FILTER (WHERE verdict = '') FROM health_events WHERE node = $1", noiseNode).Scan(&t.stored, &t.waiting)
	if err != nil {
		return t, fmt.Errorf("counting the noisy node's records: %w", err)
	}
	address := loggedAddress(n.gate.Log, "probe and metrics server started")
	for _, v := range forwardpolicy.Verdicts() {
		if !v.Counted() {
			continue
		}
		some, err := metricOf(ctx, address, fmt.Sprintf("nvsentinel_gateway_over_quota_records_total{outcome=%q}", v))
		if err != nil {
			return t, err
		}
		t.counted += int(some)
	}
	return t, nil
}

// settle looks at what waits when the noise ends, and waits until every event that was
// acknowledged is stored and evaluated, or counted instead.
func (n *noise) settle(ctx context.Context, ended time.Time) (err error) {
	conn, err := pgx.Connect(ctx, n.fleet.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	now, err := n.counts(ctx, conn)
	if err != nil {
		return err
	}
	acked := len(n.acknowledged)
	n.unstored, n.unevaluated = acked-now.stored-now.counted, now.waiting
	n.o.log("the noisy node: %d acknowledged, %d refused, %d counted, %d neither stored nor counted yet, %d not judged yet", acked, n.refused, now.counted, n.unstored, n.unevaluated)
	err = until(ctx, n.o.Sizes.Limit+3*n.o.Sizes.Noise, fmt.Sprintf("all %d acknowledged events of the noisy node to be stored and judged, or counted", acked), func() (bool, error) {
		now, err = n.counts(ctx, conn)
		return now.stored+now.counted >= acked && now.waiting == 0, err
	})
	n.evaluatedAfter = time.Since(ended)
	if err != nil {
		return fmt.Errorf("%w (%d stored, %d of them not judged, %d counted)", err, now.stored, now.waiting, now.counted)
	}
	n.left.counted = now.counted
	return n.account(ctx, conn)
}

// account compares what is stored with what was acknowledged, event by event. One that is
// not stored has to be a repeat of one before it that is, and the gateway has to have
// counted it.
func (n *noise) account(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, "SELECT id FROM health_events WHERE node = $1", noiseNode)
	if err != nil {
		return fmt.Errorf("listing the noisy node's records: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("listing the noisy node's records: %w", err)
	}
	if n.left.stored, n.left.missing, err = account(n.acknowledged, ids); err != nil {
		return err
	}
	switch beyond := n.quota.records > 0; {
	case n.left.missing > n.left.counted:
		return fmt.Errorf("%d acknowledged events of the noisy node are not stored, the gateway has counted %d", n.left.missing, n.left.counted)
	case n.left.missing > 0 != beyond:
		return fmt.Errorf("%d acknowledged events of the noisy node are not stored, with %s", n.left.missing, n.quota.name)
	}
	return conn.QueryRow(ctx, "SELECT sum(pg_column_size(h)), pg_total_relation_size('health_events') FROM health_events h WHERE node = $1", noiseNode).
		Scan(&n.left.rows, &n.left.table)
}

// account returns how many events are among the stored ids and how many are not. It fails on an
// event that is not, and reports another fault than every stored event before it.
func account(events []acknowledgedEvent, ids []string) (stored, missing int, err error) {
	there, reported := map[string]bool{}, map[int]bool{}
	for _, id := range ids {
		there[id] = true
	}
	for i, e := range events {
		switch {
		case there[e.id]:
			stored++
			reported[e.fault] = true
		case reported[e.fault]:
			missing++
		default:
			return stored, missing, fmt.Errorf("the noisy node's event %d is lost: it is not stored, and no stored event before it reports the same fault", i)
		}
	}
	return stored, missing, nil
}
