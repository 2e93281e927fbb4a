// Package reporttest is a platform connector for tests: a real gRPC server on a
// real Unix socket that records its calls and can be cut off, stalled or made to refuse.
package reporttest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
)

// Connector is a platform connector that remembers every event it acknowledged.
type Connector struct {
	protos.UnimplementedPlatformConnectorServer
	socket string

	mu      sync.Mutex
	server  *grpc.Server
	served  chan struct{} // closed when server has stopped serving
	refuse  func(*protos.HealthEvents) error
	answer  func(*protos.HealthEvent) *protos.HealthEventResult
	older   bool
	events  []*protos.HealthEvent
	batches []int
	tokens  []string
	changed chan struct{}
}

// New makes a connector that does not listen yet.
func New(t testing.TB) *Connector {
	t.Helper()
	dir, err := os.MkdirTemp("", "connector")
	if err != nil {
		t.Fatal(err)
	}
	c := &Connector{socket: filepath.Join(dir, "nvsentinel.sock"), changed: make(chan struct{})}
	t.Cleanup(func() {
		c.Cut()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start makes a connector and lets it listen.
func Start(t testing.TB) *Connector {
	t.Helper()
	c := New(t)
	c.Listen(t)
	return c
}

// Target is what a publisher dials.
func (c *Connector) Target() string { return "unix://" + c.socket }

// Listen starts (again) to serve.
func (c *Connector) Listen(t testing.TB) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	protos.RegisterPlatformConnectorServer(server, c)
	served := make(chan struct{})
	c.mu.Lock()
	c.server, c.served = server, served
	c.mu.Unlock()
	go func() {
		defer close(served)
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error("fake connector:", err)
		}
	}()
}

// Cut stops serving at once; requests under way fail.
func (c *Connector) Cut() {
	c.mu.Lock()
	server, served := c.server, c.served
	c.server = nil
	c.mu.Unlock()
	if server != nil {
		server.Stop()
		<-served
	}
}

// Refuse calls the function for every batch from now on; its error is the answer and the
// batch is not recorded. nil accepts again.
func (c *Connector) Refuse(answer func(*protos.HealthEvents) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = answer
}

// Older makes it a connector of an older version, which answers for whole batches.
func (c *Connector) Older() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.older = true
}

// Answer calls the function for every event from now on; those that are not accepted are not
// recorded. nil accepts again. A connector of an older version does not call it.
func (c *Connector) Answer(answer func(*protos.HealthEvent) *protos.HealthEventResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// HealthEventOccurredV2 records what is accepted of a batch.
func (c *Connector) HealthEventOccurredV2(ctx context.Context, in *protos.HealthEvents) (*protos.HealthEventResults, error) {
	c.mu.Lock()
	answer, older := c.answer, c.older
	c.mu.Unlock()
	if older {
		return c.UnimplementedPlatformConnectorServer.HealthEventOccurredV2(ctx, in)
	}
	out, taken := &protos.HealthEventResults{}, &protos.HealthEvents{}
	for _, e := range in.GetEvents() {
		result := &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED}
		if answer != nil {
			result = answer(e)
		}
		if result.GetOutcome() == protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED {
			taken.Events = append(taken.Events, e)
		}
		out.Results = append(out.Results, result)
	}
	if _, err := c.HealthEventOccurredV1(ctx, taken); err != nil {
		return nil, err
	}
	return out, nil
}

// HealthEventOccurredV1 records a batch.
func (c *Connector) HealthEventOccurredV1(ctx context.Context, in *protos.HealthEvents) (*emptypb.Empty, error) {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(in); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		c.tokens = append(c.tokens, md.Get("authorization")...)
	}
	c.batches = append(c.batches, len(in.Events))
	for _, e := range in.Events {
		c.events = append(c.events, proto.Clone(e).(*protos.HealthEvent))
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return &emptypb.Empty{}, nil
}

// Events is every acknowledged event in order, repetitions included.
func (c *Connector) Events() []*protos.HealthEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// Batches is the size of every acknowledged batch in order.
func (c *Connector) Batches() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.batches)
}

// Tokens is every authorization header in order.
func (c *Connector) Tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tokens)
}

// Distinct is every acknowledged event once, by id, in order of first sight. An
// id that came with two contents fails the test.
func (c *Connector) Distinct(t testing.TB) []*protos.HealthEvent {
	t.Helper()
	seen := map[string]*protos.HealthEvent{}
	var out []*protos.HealthEvent
	for _, e := range c.Events() {
		before, ok := seen[e.Id]
		if !ok {
			seen[e.Id] = e
			out = append(out, e)
		} else if !proto.Equal(before, e) {
			t.Errorf("id %s came with two contents", e.Id)
		}
	}
	return out
}

// Await waits until enough accepts the distinct events so far.
func (c *Connector) Await(t testing.TB, what string, enough func([]*protos.HealthEvent) bool) []*protos.HealthEvent {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		events := c.Distinct(t)
		if enough(events) {
			return events
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waiting for %s: %d distinct events came", what, len(events))
		}
	}
}
