package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	// frameBytes is what the connector's spool adds to an event: the frame, and
	// the machine and the counter with their tags.
	frameBytes = 60 + 7*2
	// insertBatch is how many records the connector hands to the store at once.
	insertBatch = 256
	// faultKinds is how many different faults of 8 GPUs the publishers repeat.
	faultKinds = 16
)

// ingest measures one connector between publishers and PostgreSQL.
func ingest(ctx context.Context, o Options) (rows []Row, err error) {
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: 1, Store: "postgresql", Root: o.Root, Bin: o.Bin, Progress: o.Progress,
		Runs: func(service, _ string) bool { return service == fleet.Connector },
		// One node brings more than a node may in a day, most of it repeats.
		GatewayFlags: []string{"--gateway-records-per-day-per-node=0", "--gateway-bytes-per-day-per-node=0", "--gateway-bytes-per-second-per-node=1073741824"},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	run := &ingestRun{fleet: f, pen: newPen(), sizes: o.Sizes}
	for _, step := range []func(context.Context) error{run.alone, run.together, run.measureBaselines} {
		if err := step(ctx); err != nil {
			return run.rows(), fmt.Errorf("%w\n%s", err, f.Logs("gpu-0", 5))
		}
	}
	return run.rows(), nil
}

// ingestRun is what the steps find out.
type ingestRun struct {
	fleet *fleet.Fleet
	pen   *pen
	sizes Sizes

	alone1                        []time.Duration
	acked, reached                time.Duration
	half, peak                    int64
	used                          usage
	baseline1                     []time.Duration
	baselineAcked, baselineInsert time.Duration
	inserted                      int
	transport1                    []time.Duration
	transport                     time.Duration
}

// alone sends events one after the other.
func (r *ingestRun) alone(ctx context.Context) error {
	var err error
	if _, _, err = r.publish(ctx, 1, 10); err != nil { // the first request waits for the connector
		return err
	}
	r.alone1, _, err = r.publish(ctx, 1, r.sizes.Acks)
	return errors.Join(err, r.allStored(ctx, 10+r.sizes.Acks))
}

// together sends events from many publishers, then waits until all are stored.
func (r *ingestRun) together(ctx context.Context) error {
	machine := &stage{fleet: r.fleet}
	before, err := machine.used()
	if err != nil {
		return err
	}
	stop := watchMemory(r.fleet.Service(fleet.Connector + "@gpu-0"))
	began := time.Now()
	_, acked, err := r.publish(ctx, r.sizes.Publishers, r.sizes.Events)
	r.acked = acked
	err = errors.Join(err, r.allStored(ctx, 10+r.sizes.Acks+r.sizes.Events))
	r.reached = time.Since(began)
	r.half, r.peak = stop()
	after, failed := machine.used()
	r.used = after.since(before)
	return errors.Join(err, failed)
}

// measureBaselines does the same work directly: equal bytes, equal concurrency.
func (r *ingestRun) measureBaselines(ctx context.Context) error {
	s := r.fleet.Service(fleet.Connector + "@gpu-0")
	s.Stop(ctx)
	records, err := r.fleet.Store.List(ctx, store.Query{Limit: 1})
	if err != nil {
		return err
	}
	first := records[0]
	event, err := proto.Marshal(record.ToProto(first.Event))
	if err != nil {
		return err
	}
	machine := first.Node.UID + first.Node.ProviderID + first.Node.SystemUUID + first.Node.BootID
	payload := make([]byte, frameBytes+len(event)+len(machine)+len(first.SeqEpoch))
	var errs [4]error
	if r.baseline1, _, errs[0] = appendBaseline(filepath.Join(r.fleet.Dir, "floor-1"), payload, 1, r.sizes.Acks); errs[0] == nil {
		_, r.baselineAcked, errs[1] = appendBaseline(filepath.Join(r.fleet.Dir, "floor-n"), payload, r.sizes.Publishers, r.sizes.Events)
	}
	r.inserted, r.baselineInsert, errs[2] = insertBaseline(ctx, r.fleet.DSN, insertBatch)
	r.transport1, r.transport, errs[3] = r.emptyTransport(ctx)
	return errors.Join(errs[:]...)
}

// publish sends n events of one request each from some publishers, each over a
// connection of its own. It returns each event's wait, and the whole.
func (r *ingestRun) publish(ctx context.Context, publishers, n int) ([]time.Duration, time.Duration, error) {
	return publish(ctx, r.pen, r.fleet.Socket("gpu-0"), publishers, n)
}

func publish(ctx context.Context, p *pen, socket string, publishers, n int) ([]time.Duration, time.Duration, error) {
	clients := make([]protos.PlatformConnectorClient, publishers)
	for i := range clients {
		conn, err := report.Dial(socket, "")
		if err != nil {
			return nil, 0, err
		}
		defer conn.Close()
		clients[i] = protos.NewPlatformConnectorClient(conn)
	}
	waits := make([]time.Duration, n)
	began := time.Now()
	err := atOnce(publishers, publishers, func(client int) error {
		for i := client; i < n; i += publishers {
			e := p.fault("gpu-0", i%8, strconv.Itoa(60+i/8%faultKinds), protos.RecommendedAction_CONTACT_SUPPORT)
			began := time.Now()
			_, err := clients[client].HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
			if err != nil {
				return fmt.Errorf("publishing: %w", err)
			}
			waits[i] = time.Since(began)
		}
		return nil
	})
	return waits, time.Since(began), err
}

// allStored waits until n records are in PostgreSQL.
func (r *ingestRun) allStored(ctx context.Context, n int) (err error) {
	conn, err := pgx.Connect(ctx, r.fleet.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	count := 0
	return until(ctx, r.sizes.Limit, strconv.Itoa(n)+" records in PostgreSQL", func() (bool, error) {
		err := conn.QueryRow(ctx, "SELECT count(*) FROM health_events").Scan(&count)
		return count >= n, err
	})
}

func (r *ingestRun) rows() []Row {
	if r.inserted == 0 {
		return nil
	}
	n := r.sizes.Publishers
	together := fmt.Sprintf("events per second acknowledged, %d publishers", n)
	return []Row{
		{
			Figure: "acknowledgement p50, 1 publisher", Measured: seconds(quantile(r.alone1, 0.5)), Baseline: seconds(quantile(r.baseline1, 0.5)),
			Target: Target{Within: 2}, Note: "floor: write + fsync",
		},
		{
			Figure: "  the same against a gRPC server that does nothing", Measured: seconds(quantile(r.alone1, 0.5)), Baseline: seconds(quantile(r.transport1, 0.5)),
			Note: "what the transport alone takes here",
		},
		{
			Figure: together, Measured: rate(r.sizes.Events, r.acked), Baseline: rate(r.sizes.Events, r.baselineAcked),
			Target: Target{AtLeast: 0.5}, Note: "floor: group-committed write + fsync",
		},
		{
			Figure: "  the same against a gRPC server that does nothing", Measured: rate(r.sizes.Events, r.acked), Baseline: rate(r.sizes.Events, r.transport),
			Note: "what the transport alone reaches here",
		},
		{
			Figure: "events per second into PostgreSQL in that run", Measured: rate(r.sizes.Events, r.reached), Baseline: rate(r.inserted, r.baselineInsert),
			Target: Target{AtLeast: 0.7}, Note: fmt.Sprintf("floor: INSERT of %d rows, one connection", insertBatch),
		},
		{
			Figure: "connector's memory in that run, at most", Measured: bytesOf(r.peak), Baseline: bytesOf(r.half),
			Target: Target{Within: 1.25}, Note: "floor: the same in the first half of the run",
		},
		r.busy("the connector's", fleet.Connector), r.busy("PostgreSQL's", "PostgreSQL"),
	}
}

// busy is the processor time of a part for each event of that run.
func (r *ingestRun) busy(whose, part string) Row {
	return Row{
		Figure: "  " + whose + " CPU per event in that run", Measured: Quantity{r.used[part].Seconds() / float64(r.sizes.Events), Seconds, true},
		Remarks: "load " + load(),
	}
}
