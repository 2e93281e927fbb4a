package report

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Bounds of one request.
const (
	batchEvents = 100
	batchBytes  = MaxEventBytes
	// Deadline bounds one request to the connector.
	Deadline = 10 * time.Second
)

// Pauses between requests that fail; chance makes one up to half as long again.
// The connector is a socket of the node: together with the pause until the next
// connection (see Dial), events go out within two seconds of its return.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 900 * time.Millisecond
)

// Queue is what a Publisher empties: an Outbox, or another durable queue of events
// that have their id, seq and epoch.
type Queue interface {
	// Peek returns the oldest durable entries behind a seq, as Outbox.Peek does.
	Peek(after uint64, count, bytes int) ([]Entry, error)
	// Remove takes acknowledged entries out.
	Remove(seqs ...uint64) error
	// Bury takes out an entry that was rejected for good.
	Bury(seq uint64, reason string) error
	// Changed is closed at the next change of what Peek returns.
	Changed() <-chan struct{}
}

// Publisher empties an outbox into the platform connector, oldest first, one
// request at a time. An entry leaves the outbox only after the connector's answer for it.
//
// The connector answers for each event, so that none blocks another: an accepted one
// leaves the outbox, one that is rejected for good becomes a dead letter, and one that
// may be accepted later stays and is sent again when those behind it were sent. A
// request that fails is tried again for ever, because the same events are right once
// the cause is gone.
type Publisher struct {
	// Name is the agent, used for crash points.
	Name      string
	Outbox    Queue
	Connector protos.PlatformConnectorClient
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   *Metrics

	outage retry.Outage
}

// Ready reports whether the last request was acknowledged, and if not, why. Before
// the first request it is ready.
func (p *Publisher) Ready() (bool, string) { return p.outage.Ready() }

// pass is one way through the outbox.
type pass struct {
	after uint64           // where the next batch begins
	left  error            // why an entry was left behind, if one was
	again <-chan time.Time // when the entries that were left behind are sent again
}

// Run publishes until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = firstPause, mostPause, 2
	pace.Reset()
	var at pass
	for ctx.Err() == nil {
		changed := p.Outbox.Changed()
		batch, err := p.Outbox.Peek(at.after, batchEvents, batchBytes)
		if err == nil && len(batch) == 0 {
			at = p.waitForNext(ctx, at, changed, pace)
			continue
		}
		accepted := 0
		if err == nil {
			at, accepted, err = p.deliver(ctx, at, batch)
		}
		if err != nil || at.left == nil {
			p.note(err)
		}
		if err == nil && (at.left == nil || accepted > 0) {
			pace.Reset()
			continue
		}
		retry.Sleep(ctx, p.Clock, pace.NextBackOff())
	}
	return nil
}

// waitForNext waits at the end of a pass: for further entries or, if entries were left behind,
// until it is time to send them again.
func (p *Publisher) waitForNext(ctx context.Context, at pass, changed <-chan struct{}, pace *backoff.ExponentialBackOff) pass {
	if at.left != nil && at.again == nil {
		p.note(at.left)
		at.again = p.Clock.After(pace.NextBackOff())
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-at.again:
		return pass{}
	}
	return at
}

// note logs the first failure of a row and its end, not every try.
func (p *Publisher) note(err error) {
	switch begins, ends := p.outage.Note(err); {
	case begins:
		p.Log.Warn("events not accepted by the platform connector, kept in the outbox", "error", err)
	case ends:
		p.Log.Info("event delivery to the platform connector restored")
	}
}

// deliver sends a batch and takes out what was rejected for good, then what was accepted:
// a queue sees a rejected entry together with those behind it. The pass goes on behind the
// batch if an entry of it was left behind.
func (p *Publisher) deliver(ctx context.Context, at pass, batch []Entry) (next pass, accepted int, err error) {
	verdicts, err := p.send(ctx, batch)
	if err != nil {
		return at, 0, err
	}
	var done []Entry
	var dead []int
	for i, v := range verdicts {
		switch v.Outcome {
		case Accepted:
			done = append(done, batch[i])
		case Rejected:
			dead = append(dead, i)
		case Retry:
			at.after, at.left = batch[len(batch)-1].Seq, fmt.Errorf("sending event %d: %w", batch[i].Seq, v.Err)
		}
	}
	for n, i := range dead {
		if n == 0 {
			e := batch[i]
			p.Log.Error("events permanently rejected and dead-lettered", "events", len(dead),
				"seq", e.Seq, "id", e.Event.GetId(), "check", e.Event.GetCheckName(), "node", e.Event.GetNodeName(), "error", verdicts[i].Err)
		}
		if err := p.Outbox.Bury(batch[i].Seq, verdicts[i].Err.Error()); err != nil {
			return at, 0, err
		}
		p.Metrics.DeadLetters.Inc()
	}
	if err := p.acknowledged(done); err != nil {
		return at, 0, err
	}
	return at, len(done), nil
}

// send is the verdict on each entry of a batch. What cannot be decoded is not sent.
func (p *Publisher) send(ctx context.Context, batch []Entry) ([]Verdict, error) {
	out := make([]Verdict, len(batch))
	var events []*protos.HealthEvent
	var of []int
	for i, e := range batch {
		if e.Event == nil {
			out[i] = Verdict{Rejected, e.Err}
			continue
		}
		events, of = append(events, e.Event), append(of, i)
	}
	if len(events) == 0 {
		return out, nil
	}
	sender := Sender{p.Connector, func(err error) { p.Metrics.Failures.WithLabelValues(status.Code(err).String()).Inc() }}
	verdicts, err := sender.Send(ctx, events)
	if err != nil {
		return nil, fmt.Errorf("sending %d events: %w", len(events), err)
	}
	for i, v := range verdicts {
		out[of[i]] = v
	}
	return out, nil
}

// acknowledged takes entries out that the connector has accepted.
func (p *Publisher) acknowledged(batch []Entry) error {
	if len(batch) == 0 {
		return nil
	}
	crashpoint.Here(p.Name + "/published")
	for _, e := range batch {
		p.Metrics.Published.WithLabelValues(e.Event.GetProcessingStrategy().String()).Inc()
	}
	return p.remove(batch)
}

func (p *Publisher) remove(batch []Entry) error {
	seqs := make([]uint64, len(batch))
	for i, e := range batch {
		seqs[i] = e.Seq
	}
	if err := p.Outbox.Remove(seqs...); err != nil {
		return err
	}
	crashpoint.Here(p.Name + "/removed")
	return nil
}

// window is how many bytes of answers the connector may send ahead; gRPC takes
// no less.
const window = 64 << 10

// Dial prepares a connection to the connector's socket, for example
// unix:///var/run/nvsentinel.sock; a bare path is a socket too. It does not
// wait for the connector. tokenFile, when not empty, holds the bearer token of
// every request and is read for each of them, because it is rotated.
func Dial(target, tokenFile string) (*grpc.ClientConn, error) {
	if strings.HasPrefix(target, "/") {
		target = "unix://" + target
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		// With windows of its own choice gRPC would measure the line with a ping
		// per answer. Answers are empty, and the line is a socket of the node.
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
	}
	if tokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(tokenFile)))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the platform connector at %s: %w", target, err)
	}
	return conn, nil
}

// token is the path of a file with a bearer token.
type token string

// GetRequestMetadata reads the token as it is now.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	data, err := os.ReadFile(string(t))
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "reading the bearer token: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(data))}, nil
}

// RequireTransportSecurity is false: the transport is a Unix socket of the node.
func (token) RequireTransportSecurity() bool { return false }
