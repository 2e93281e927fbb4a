package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

// storm is many nodes that fail at the same moment, again and again.
type storm struct {
	*suite
	ledger  *ledger
	pen     *pen
	clients map[string]protos.PlatformConnectorClient
	// waits are from a fault to its cordon, by the way the fault took.
	reported, observed, stored []time.Duration
}

// storms measures the cordons of all rounds. The nodes of the first Reporters have
// connectors.
func (u *suite) storms(ctx context.Context, l *ledger) (_ []figure, err error) {
	t := &storm{suite: u, ledger: l, pen: newPen(), clients: map[string]protos.PlatformConnectorClient{}}
	for i := range u.o.Sizes.Reporters {
		conn, err := report.Dial(u.socket(nodeName(i)), "")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		t.clients[nodeName(i)] = protos.NewPlatformConnectorClient(conn)
	}
	for r := range u.o.Sizes.Rounds {
		if err := t.round(ctx, r); err != nil {
			return nil, fmt.Errorf("round %d: %w", r+1, err)
		}
	}
	return t.figures(), nil
}

// round has nodes fail, waits for their cordons, has them recover, and waits for
// their release.
func (t *storm) round(ctx context.Context, r int) error {
	n := t.o.Sizes
	var reporters, observed []string
	var others []int
	for i := range n.Reporters {
		reporters, observed = append(reporters, nodeName(i)), append(observed, nodeName(n.Reporters+i))
	}
	rest := t.nodes - 2*n.Reporters
	for i := range n.Others {
		others = append(others, 2*n.Reporters+(r*n.Others+i)%rest)
	}
	all := slices.Concat(reporters, observed)
	for _, i := range others {
		all = append(all, nodeName(i))
	}
	began := time.Now()
	if err := t.strike(ctx, reporters, observed, others, t.pen.fault); err != nil {
		return err
	}
	if err := errors.Join(t.ledger.await(ctx, n.Limit, true, all), allAlive(t.running)); err != nil {
		return err
	}
	t.note(&t.reported, reporters, began)
	t.note(&t.observed, observed, began)
	t.note(&t.stored, all[2*n.Reporters:], began)
	if err := t.strike(ctx, reporters, observed, others, t.pen.recovery); err != nil {
		return err
	}
	return errors.Join(t.ledger.await(ctx, n.Limit, false, all), allAlive(t.running))
}

// note adds how long the cordons of nodes took.
func (t *storm) note(into *[]time.Duration, nodes []string, began time.Time) {
	for _, node := range nodes {
		*into = append(*into, t.ledger.at(node).since.Sub(began))
	}
}

// strike brings an event of each node at the same moment, by the ways that its
// reporters take; a recovery's text takes the label of observed nodes away.
func (t *storm) strike(ctx context.Context, reporters, observed []string, others []int, write func(node string) *protos.HealthEvent) error {
	var records []record.Record
	for _, i := range others {
		records = append(records, stored(write(nodeName(i)), i, t.ledger.at(nodeName(i)).uid))
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := t.store.Append(ctx, records)
		return err
	})
	for _, node := range reporters {
		group.Go(func() error {
			_, err := t.clients[node].HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{write(node)}}, grpc.WaitForReady(true))
			return err
		})
	}
	for _, node := range observed {
		group.Go(func() error { return t.label(ctx, node, !write(node).GetIsHealthy()) })
	}
	return group.Wait()
}

// label sets or removes the label that makes a node broken for the object monitor.
func (t *storm) label(ctx context.Context, node string, broken bool) error {
	var value any
	if broken {
		value = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{brokenLabel: value}}})
	if err != nil {
		return err
	}
	_, err = t.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (t *storm) figures() []figure {
	var out []figure
	for _, way := range []struct {
		name  string
		waits []time.Duration
	}{
		{"fault reported to a connector to cordon", t.reported}, {"fault seen by the object monitor to cordon", t.observed}, {"fault stored to cordon", t.stored},
	} {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			out = append(out, figure{
				nodes: t.nodes, name: way.name + ", " + q.name, value: seconds(quantile(way.waits, q.at)), growth: cordonGrowth, level: true,
				note: fmt.Sprintf("%d times, %d faults at the same moment", len(way.waits), 2*t.o.Sizes.Reporters+t.o.Sizes.Others),
			})
		}
	}
	return out
}

// cordonGrowth is by how much a cordon may take longer than at the smallest size.
const cordonGrowth = 1.5
