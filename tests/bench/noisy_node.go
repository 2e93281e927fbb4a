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

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

const (
	// noiseTick is how often the noisy node sends what has come due, maxDue how
	// much of it at most.
	noiseTick, maxDue = 10 * time.Millisecond, 2000
	// fatalEvery is how rare a fatal fault is among its events, firstFatal the
	// number of the first.
	fatalEvery, firstFatal = 1000, 20
	// noiseCodes is how many codes its other events have, on each of 8 GPUs.
	noiseCodes = 500
)

// shout has the noisy node report at a fixed rate until ctx ends. What its
// connector refuses is counted and not sent again.
func (n *noise) shout(ctx context.Context) error {
	conn, err := report.Dial(n.fleet.Socket(noiseNode), "")
	if err != nil {
		return err
	}
	defer conn.Close()
	door := protos.NewPlatformConnectorClient(conn)
	tick := time.NewTicker(noiseTick)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds()*float64(n.o.Sizes.NoiseRate)) - sent
		batch := &protos.HealthEvents{Version: 1}
		for range min(due, maxDue) {
			batch.Events = append(batch.Events, n.murmur(sent))
			sent++
		}
		// Not with ctx: what was sent is answered, so that it can be counted.
		_, err := door.HealthEventOccurredV1(context.WithoutCancel(ctx), batch, grpc.WaitForReady(true))
		switch {
		case err == nil:
			n.acked += len(batch.Events)
		case status.Code(err) == codes.ResourceExhausted:
			n.refused += len(batch.Events)
		default:
			return fmt.Errorf("reporting %d events of the noisy node: %w", len(batch.Events), err)
		}
	}
}

// murmur is one event of the noisy node; no two are alike.
func (n *noise) murmur(i int) *protos.HealthEvent {
	gpu, code, action := i%8, strconv.Itoa(1000+i/8%noiseCodes), protos.RecommendedAction_NONE
	if fatal := i%fatalEvery == firstFatal; fatal {
		return n.pen.fault(noiseNode, i/fatalEvery%8, "95", protos.RecommendedAction_CONTACT_SUPPORT)
	}
	e := n.pen.fault(noiseNode, gpu, code, action)
	e.IsFatal, e.Message = false, fmt.Sprintf("%s, event %d", e.GetMessage(), i)
	return e
}

// counts says how many events of the noisy node are stored, and how many of those
// have no verdict.
func (n *noise) counts(ctx context.Context, conn *pgx.Conn) (stored, waiting int, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE verdict = '') FROM health_events WHERE node = $1", noiseNode).Scan(&stored, &waiting)
	return stored, waiting, err
}

// settle looks at what waits when the noise ends, and waits until every event
// that was acknowledged is stored and judged.
func (n *noise) settle(ctx context.Context, ended time.Time) (err error) {
	conn, err := pgx.Connect(ctx, n.fleet.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	stored, waiting, err := n.counts(ctx, conn)
	if err != nil {
		return err
	}
	n.unstored, n.unjudged = n.acked-stored, waiting
	n.o.say("the noisy node: %d acknowledged, %d refused, %d not stored yet, %d not judged yet", n.acked, n.refused, n.unstored, n.unjudged)
	err = until(ctx, n.o.Sizes.Limit+3*n.o.Sizes.Noise, fmt.Sprintf("all %d acknowledged events of the noisy node to be stored and judged", n.acked), func() (bool, error) {
		stored, waiting, err = n.counts(ctx, conn)
		return stored >= n.acked && waiting == 0, err
	})
	n.judged = time.Since(ended)
	if err == nil && stored != n.acked {
		err = fmt.Errorf("%d events of the noisy node are stored, %d were acknowledged", stored, n.acked)
	}
	if err != nil {
		return fmt.Errorf("%w (%d stored, %d of them not judged)", err, stored, waiting)
	}
	return nil
}
