package nodeconnector

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// This part of the package sends an event through the ingest endpoint of the connector itself
// when a person asks for one with nvsentinel canary, so that they see that the way of an
// event to the store is open, and how long it takes. The event is for the record only, and
// healthy.

// What a canary is sent as.
const (
	canaryAgent = "nvsentinel-canary"
	canaryCheck = "NVSentinelCanary"
)

const (
	// fresh is how old an asking may be: one that was left on the Node is not sent
	// again by every life of the connector.
	canaryFresh = 10 * time.Minute
	// deadline bounds one sending.
	canaryDeadline = 30 * time.Second
)

// Canary answers the annotation of the connector's Node.
type Canary struct {
	NodeName string
	// Socket is the path of the connector's own socket.
	Socket string
	// Node is the Node as it was seen last, or nil.
	Node  func() *corev1.Node
	Clock clock.PassiveClock
	Log   *slog.Logger

	wake retry.Wake
	sent string // the last one
}

// Waker returns what to call when the Node has changed; it comes before Run.
func (c *Canary) Waker() func() {
	c.wake = retry.NewWake()
	return c.wake.Call
}

// Run answers until ctx ends. What is asked for again has the same id, of which the
// store has one.
func (c *Canary) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		id, ok := c.requested()
		if !ok {
			continue
		}
		c.sent = id
		if err := c.send(ctx, id); err != nil {
			c.Log.Warn("canary rejected", "event", id, "error", err)
			continue
		}
		c.Log.Info("canary accepted", "event", id)
	}
}

// requested is the id of a canary that is asked for and was not sent yet.
func (c *Canary) requested() (string, bool) {
	value := nodemark.Read(c.Node()).Canary
	id, err := uuid.Parse(value)
	if err != nil || id.Version() != 7 || id.String() != value || value == c.sent {
		return "", false
	}
	seconds, nanos := id.Time().UnixTime()
	if age := c.Clock.Since(time.Unix(seconds, nanos)); age.Abs() > canaryFresh {
		return "", false
	}
	return value, true
}

func (c *Canary) send(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, canaryDeadline)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Id: id, Agent: canaryAgent, CheckName: canaryCheck, ComponentClass: "Node", NodeName: c.NodeName, IsHealthy: true,
		Message: "canary: manual test of event delivery", RecommendedAction: protos.RecommendedAction_NONE,
		ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY, GeneratedTimestamp: timestamppb.New(c.Clock.Now()),
	}}}, grpc.WaitForReady(true))
	return err
}
