package journey

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// loadEvery and loadBatch are the pace of a node's background events.
const (
	loadEvery = 100 * time.Millisecond
	loadBatch = 3
	// ingestTimeout is how long one call may take before it is tried again.
	ingestTimeout = 2 * time.Second
)

// load publishes PERSIST_ONLY events at a node's ingest endpoint, as another agent of the
// node does, and remembers what was acknowledged.
type load struct {
	fleet *fleet.Fleet
	node  string

	mu    sync.Mutex
	acked map[string]bool
}

// dial connects to a node's ingest endpoint.
func dial(f *fleet.Fleet, node string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+f.Socket(node), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: ingestTimeout}))
}

// run publishes until ctx ends. A batch without an answer is sent again with
// the same ids, as every publisher does.
func (l *load) run(ctx context.Context) error {
	conn, err := dial(l.fleet, l.node)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := protos.NewPlatformConnectorClient(conn)
	for batch := l.batch(); ; {
		call, cancel := context.WithTimeout(ctx, ingestTimeout)
		_, err := client.HealthEventOccurredV1(call, batch)
		cancel()
		if err == nil {
			l.acknowledge(batch)
			batch = l.batch()
		}
		if !pause(ctx, loadEvery) {
			return nil
		}
	}
}

func (l *load) batch() *protos.HealthEvents {
	out := &protos.HealthEvents{Version: 1}
	for range loadBatch {
		id := uuid.Must(uuid.NewV7()).String()
		out.Events = append(out.Events, &protos.HealthEvent{
			Version: 1, Id: id, Agent: "journey", CheckName: "JourneyLoad", ComponentClass: "GPU",
			NodeName: l.node, Message: "reading " + id, GeneratedTimestamp: timestamppb.Now(),
			ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY,
		})
	}
	return out
}

func (l *load) acknowledge(batch *protos.HealthEvents) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range batch.GetEvents() {
		l.acked[e.GetId()] = true
	}
}

// missing lists the acknowledged events that the store does not have.
func (l *load) missing(ctx context.Context) ([]string, error) {
	stored, err := l.fleet.Store.List(ctx, store.Query{Selector: record.Selector{Node: l.node, Strategy: record.PersistOnly, Agent: "journey"}})
	if err != nil {
		return nil, fmt.Errorf("reading the load of %s: %w", l.node, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := make(map[string]bool, len(l.acked))
	for id := range l.acked {
		left[id] = true
	}
	for _, r := range stored {
		delete(left, r.ID)
	}
	out := make([]string, 0, len(left))
	for id := range left {
		out = append(out, id)
	}
	return out, nil
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}
