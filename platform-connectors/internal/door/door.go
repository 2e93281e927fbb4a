// Package door is the connector's front door: the gRPC service on the node's
// Unix socket. It answers OK only after every event of the batch is durable.
package door

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// Spool makes records durable.
type Spool interface {
	Append(ctx context.Context, records []record.Record) error
}

// Door accepts the health events of one node.
type Door struct {
	protos.UnimplementedPlatformConnectorServer

	NodeName string
	Spool    Spool
	// Identity is the last sighting of the node's machine, or empty.
	Identity func() record.NodeIdentity
	Clock    clock.PassiveClock
	Metrics  *Metrics
}

// Metrics of the door.
type Metrics struct {
	accepted *prometheus.CounterVec
	refused  *prometheus.CounterVec
	cuts     *prometheus.CounterVec
}

// Reasons of refusals that are not the event's, as label values.
const (
	reasonFull        = "spool-full"
	reasonUnavailable = "unavailable"
)

// NewMetrics registers the door's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_accepted_total",
			Help: "Events acknowledged after they were durable, by processing strategy.",
		}, []string{"strategy"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_refused_total",
			Help: "Batches refused, by reason.",
		}, []string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_cuts_total",
			Help: "Accepted events from which something was cut or replaced, by what.",
		}, []string{"what"}),
	}
	for _, s := range []record.Strategy{record.Process, record.PersistOnly} {
		m.accepted.WithLabelValues(string(s))
	}
	for _, c := range admission.Cuts() {
		m.cuts.WithLabelValues(string(c))
	}
	for _, reason := range append(admission.Reasons(), reasonFull, reasonUnavailable) {
		m.refused.WithLabelValues(string(reason))
	}
	r.MustRegister(m.accepted, m.refused, m.cuts)
	return m
}

// HealthEventOccurredV1 accepts a batch whole, or refuses it whole and names
// the event and the field.
func (d *Door) HealthEventOccurredV1(ctx context.Context, batch *protos.HealthEvents) (*emptypb.Empty, error) {
	crashpoint.Here("platform-connectors/received")
	admitted, err := admission.Batch(batch.GetEvents(), d.NodeName)
	if err != nil {
		return nil, d.refuse(err)
	}
	records, err := d.records(admitted)
	if err != nil {
		return nil, d.refuse(err)
	}
	if err := d.Spool.Append(ctx, records); err != nil {
		return nil, d.refuse(err)
	}
	crashpoint.Here("platform-connectors/spooled")
	for _, a := range admitted {
		d.Metrics.accepted.WithLabelValues(string(a.Event.ProcessingStrategy)).Inc()
		for _, cut := range a.Cuts {
			d.Metrics.cuts.WithLabelValues(string(cut)).Inc()
		}
	}
	return &emptypb.Empty{}, nil
}

// records are the admitted events as they will be stored.
func (d *Door) records(admitted []admission.Admitted) ([]record.Record, error) {
	now, node := d.Clock.Now().UTC(), d.Identity()
	out := make([]record.Record, 0, len(admitted))
	for _, a := range admitted {
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
		return "", fmt.Errorf("making an id: %w", err)
	}
	random := [2]byte{id[6], id[7]}
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16)
	id[6], id[7] = random[0]&0x0f|0x70, random[1]
	id[8] = id[8]&0x3f | 0x80
	return id.String(), nil
}

// refuse turns an error into what the publisher is told.
func (d *Door) refuse(err error) error {
	code, reason := codes.Unavailable, reasonUnavailable
	if refusal, ok := errors.AsType[*admission.Refusal](err); ok {
		code, reason = codes.InvalidArgument, string(refusal.Reason)
		if refusal.Reason == admission.ForeignNode {
			code = codes.PermissionDenied
		}
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
