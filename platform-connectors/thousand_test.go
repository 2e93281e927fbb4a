package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

var crowd = flag.Int("nodes", 1000, "how many nodes TestAThousandNodes has")

// queue is a spool in memory, of one node: a thousand on one disk would measure the
// disk.
type queue struct {
	mu        sync.Mutex
	entries   []spool.Entry
	confirmed uint64
	more      chan struct{}
}

func (s *queue) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo := min(after+uint64(limit), uint64(len(s.entries)))
	return s.entries[after:upTo], upTo, nil
}

func (s *queue) Wait(ctx context.Context, after uint64) error {
	for {
		s.mu.Lock()
		n, more := uint64(len(s.entries)), s.more
		s.mu.Unlock()
		if n > after {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *queue) Bounds() (released, committed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed, uint64(len(s.entries))
}

func (s *queue) Confirm(index uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = index
	return nil
}

func (s *queue) add(r record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, spool.Entry{Index: uint64(len(s.entries)) + 1, Record: r})
	close(s.more)
	s.more = make(chan struct{})
}

// unchanged is a pipeline without stages.
type unchanged struct{}

func (unchanged) Transform(_ context.Context, records []record.Record) ([]record.Record, func([]store.AppendResult)) {
	return records, func([]store.AppendResult) {}
}

// TestAThousandNodes forward through two gateways on PostgreSQL, each node with the
// token of a pod of its own. One gateway is killed as by a power cut in the middle,
// later the other. Nothing is lost or stored twice, and every node's order is kept.
//
//	go test ./platform-connectors -run TestAThousandNodes -nodes 1000 -v
func TestAThousandNodes(t *testing.T) {
	testkit.Long(t, "TestGatewaysAreKilledWhileEventsFlow does it with one node")
	const each = 10
	server := pgtest.Own(t, pgtest.Options{})
	records := storetest.Open(t, server.DSN("postgres"), storeopen.Options{})
	a := newAvenue(t)
	gate := func(i int) *process {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return a.run(exe, "--role=gateway", "--kubeconfig="+a.cluster.AdminKubeconfig(), "--store="+server.DSN("postgres"),
			"--gateway-listen="+a.address[i], "--gateway-cert-file="+a.cert, "--gateway-key-file="+a.key, "--gateway-accounts="+a.account,
			"--gateway-connections-per-address=5000", "--inspect-address=", "--metrics-address=off", "--log-format=text", "--log-level=error")
	}
	gates := []*process{gate(0), gate(1)}
	tokens := a.tokens(*crowd)
	runCtx, end := context.WithCancel(t.Context())
	var stored atomic.Int64
	spools, want := make([]*queue, *crowd), make([][]string, *crowd)
	var nodes, forwarders sync.WaitGroup
	begin := time.Now()
	for n := range *crowd {
		node := fmt.Sprintf("crowd-%d", n)
		g, err := upstream.Open(upstream.Config{Address: strings.Join(a.address[:], ","), TokenFile: tokens[n], CAFile: a.cert}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s := &queue{more: make(chan struct{})}
		spools[n] = s
		sender := &forwarder.Sender{
			Sink: g, Transform: unchanged{}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
			Metrics: forwarder.NewMetrics(prometheus.NewRegistry(), prometheus.NewCounter(prometheus.CounterOpts{Name: "dead"})),
		}
		r := &forwarder.Forwarder{
			Spool: s, Reader: s, Sender: sender, Identity: func() record.NodeIdentity { return record.NodeIdentity{} },
			Tally: forwarder.NewTally(0, &forwarder.Tally{Shape: same, Clock: clock.RealClock{}}, prometheus.NewRegistry()),
			Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		}
		forwarders.Go(func() {
			if err := r.Run(runCtx); err != nil {
				t.Error(err)
			}
			g.Close()
		})
		nodes.Go(func() {
			for range each {
				e := storetest.Record(node)
				want[n] = append(want[n], e.ID)
				s.add(e)
				if !s.await(runCtx, uint64(len(want[n]))) {
					return
				}
				stored.Add(1)
			}
		})
	}
	for kill := range 2 {
		reach(t, &stored, int64(*crowd*each*(kill+1)/3))
		gates[kill].kill()
		t.Logf("gateway %d is killed after %d records, %s", kill, stored.Load(), time.Since(begin).Round(time.Millisecond))
		gates[kill] = gate(kill)
	}
	nodes.Wait()
	t.Logf("%d nodes, %d records, acknowledged after %s", *crowd, stored.Load(), time.Since(begin).Round(time.Millisecond))
	end()
	forwarders.Wait()
	got := map[string][]string{}
	for after := int64(0); ; {
		page, err := records.List(t.Context(), store.Query{After: after, Limit: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			got[r.Event.NodeName], after = append(got[r.Event.NodeName], r.ID), r.Append
		}
	}
	lost, disordered := 0, 0
	for n := range *crowd {
		have := got[fmt.Sprintf("crowd-%d", n)]
		lost += each - len(have)
		if fmt.Sprint(have) != fmt.Sprint(want[n]) {
			disordered++
		}
	}
	t.Logf("lost %d, nodes in another order %d", lost, disordered)
	if lost != 0 || disordered != 0 {
		t.Errorf("lost %d records; %d nodes have others, or in another order", lost, disordered)
	}
}

// await waits until so many entries are confirmed.
func (s *queue) await(ctx context.Context, n uint64) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if confirmed, _ := s.Bounds(); confirmed >= n {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// reach waits for a count, for as long as the test has.
func reach(t *testing.T, count *atomic.Int64, n int64) {
	t.Helper()
	testkit.Until(t, 15*time.Minute, func() bool { return count.Load() >= n })
}

// tokens are files with the tokens of pods of so many nodes.
func (a *avenue) tokens(n int) []string {
	a.t.Helper()
	namespace := strings.Split(a.account, ":")[2]
	dir, out := a.t.TempDir(), make([]string, n)
	// A token names its node's uid, so the Nodes come first.
	for i := range n {
		out[i] = filepath.Join(dir, fmt.Sprint(i))
		node := fmt.Sprintf("crowd-%d", i)
		_, err := a.cluster.Client().CoreV1().Nodes().Create(a.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
		if err := os.WriteFile(out[i], []byte(a.site.token(namespace, "connectors", node, gateway.Audience)), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	a.t.Cleanup(func() {
		err := a.cluster.Client().CoreV1().Nodes().DeleteCollection(context.WithoutCancel(a.t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			a.t.Error(err)
		}
	})
	return out
}

// same is a pipeline without stages.
func same(_ context.Context, r record.Record) record.Record { return r }
