// Package ingest is the ingest endpoint of the connector: the gRPC service on the node's
// Unix socket. It answers OK only after every event of the batch is durable.
package ingest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// Spool makes records durable.
type Spool interface {
	Append(ctx context.Context, records []record.Record) error
}

// Authenticator knows the callers.
type Authenticator interface {
	// Enter identifies the caller of a request; wide is true if it publishes events about all
	// nodes. Its errors are *authn.Denied, as are those of Speak.
	Enter(ctx context.Context) (caller authz.Caller, wide bool, err error)
	// Speak decides whether the caller may send the events.
	Speak(caller authz.Caller, events []record.Event) error
	// SpeakEach decides for each event whether the caller may send it; nil is yes.
	SpeakEach(caller authz.Caller, events []record.Event) ([]*authn.Denied, error)
}

// Direct stores the events of cluster-wide publishers: it returns when the store
// has them, and *forwarder.Taken when it refused some for good.
type Direct interface {
	Append(ctx context.Context, records []record.Record) error
}

// Server accepts the health events of one node, and those of cluster-wide
// publishers on it.
type Server struct {
	protos.UnimplementedPlatformConnectorServer

	NodeName      string
	Spool         Spool
	Authenticator Authenticator
	Direct        Direct
	// Identity is the node's machine as it was seen last, or empty.
	Identity func() record.NodeIdentity
	// IdentityOf is the machine of any node as it is now, or empty.
	IdentityOf func(ctx context.Context, node string) record.NodeIdentity
	// Rejected is called with what was rejected for good, and how many events of a batch; nil
	// is not called.
	Rejected func(problem string, events int)
	Clock    clock.PassiveClock
	Log      *slog.Logger
	Metrics  *Metrics
	// ReadTimeout ends the wait for the message of a request; nil is that of the
	// package.
	ReadTimeout func() <-chan time.Time

	limits  limits
	numbers numbers
}

// EarlierNumbers sets which agents give processingStrategy the numbers of the earlier
// NVSentinel, before the server serves.
func (d *Server) EarlierNumbers(agents ...string) {
	d.numbers.of = map[string]bool{}
	for _, a := range agents {
		d.numbers.of[a] = true
	}
}

// sender is who sends a batch.
type sender struct {
	caller authz.Caller
	// wide: it publishes events about all nodes.
	wide bool
}

// HealthEventOccurredV1 is a batch that came otherwise than over the socket.
func (d *Server) HealthEventOccurredV1(ctx context.Context, batch *protos.HealthEvents) (*emptypb.Empty, error) {
	caller, wide, err := d.Authenticator.Enter(ctx)
	if err != nil {
		return nil, d.refuse(err)
	}
	return &emptypb.Empty{}, d.occurred(ctx, sender{caller, wide}, batch)
}

// occurred accepts a batch whole, or refuses it whole and names the event and
// the field. Those of a cluster-wide publisher are acknowledged when the store
// has them, all others when the spool has.
func (d *Server) occurred(ctx context.Context, from sender, batch *protos.HealthEvents) error {
	crashpoint.Here("platform-connectors/received")
	admitted, err := d.admit(from, batch)
	if err != nil {
		return d.refuse(err)
	}
	records, err := d.records(ctx, admitted, from.wide)
	if err != nil {
		return d.refuse(err)
	}
	if err := d.append(ctx, from, records); err != nil {
		return d.refuse(err)
	}
	crashpoint.Here("platform-connectors/spooled")
	d.Metrics.count(admitted)
	d.numbers.logLegacyAgents(d.Log, batch.GetEvents())
	return nil
}

// speaksFor is the node of which a sender may report; empty is any.
func (d *Server) speaksFor(from sender) string {
	if from.wide {
		return ""
	}
	return d.NodeName
}

// admit checks what is in the batch, and whether its sender may send it.
func (d *Server) admit(from sender, batch *protos.HealthEvents) (admitted []admission.Admitted, err error) {
	d.numbers.translate(batch.GetEvents())
	if admitted, err = admission.Batch(batch.GetEvents(), d.speaksFor(from)); err != nil {
		return nil, err
	}
	events := make([]record.Event, len(admitted))
	for i, a := range admitted {
		events[i] = a.Event
	}
	return admitted, d.Authenticator.Speak(from.caller, events)
}

// records are the admitted events as they will be stored.
func (d *Server) records(ctx context.Context, admitted []admission.Admitted, wide bool) ([]record.Record, error) {
	now, node := d.Clock.Now().UTC(), d.Identity()
	out := make([]record.Record, 0, len(admitted))
	for _, a := range admitted {
		if wide {
			node = d.IdentityOf(ctx, a.Event.NodeName)
		}
		e := a.Event
		if e.ID == "" {
			id, err := newID(now)
			if err != nil {
				return nil, err
			}
			e.ID = id
		}
		r := record.Record{ID: e.ID, CreatedAt: now, Node: node, Event: e}
		// A counter that no store can hold is none: the spool's order stands in.
		if seq, epoch, ok := e.Seq(); ok && seq <= math.MaxInt64 {
			r.Seq, r.SeqEpoch = seq, epoch
		}
		out = append(out, r)
	}
	return out, nil
}

// newID is a UUIDv7 of the given time.
func newID(now time.Time) (string, error) {
	var id uuid.UUID
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("creating an id: %w", err)
	}
	random := [2]byte{id[6], id[7]}
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16)
	id[6], id[7] = random[0]&0x0f|0x70, random[1]
	id[8] = id[8]&0x3f | 0x80
	return id.String(), nil
}

// refuse turns an error into the answer to the publisher.
func (d *Server) refuse(err error) error {
	code, reason := codes.Unavailable, reasonUnavailable
	if refusal, ok := errors.AsType[*admission.Refusal](err); ok {
		code, reason = codes.InvalidArgument, string(refusal.Reason)
		if refusal.Reason == admission.ForeignNode {
			code = codes.PermissionDenied
		}
	}
	if denied, ok := errors.AsType[*authn.Denied](err); ok {
		code, reason = denied.Code, denied.Reason
	}
	if _, ok := errors.AsType[*forwarder.Taken](err); ok {
		code, reason = codes.InvalidArgument, reasonTaken
	}
	switch {
	case errors.Is(err, spool.ErrFull):
		code, reason = codes.ResourceExhausted, reasonFull
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	d.Metrics.refused.WithLabelValues(reason).Inc()
	return status.Error(code, err.Error())
}
