package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// tellAgain is the time between two tries to tell.
const tellAgain = 15 * time.Second

// Component is how the connector calls itself in Events.
const Component = "nvsentinel-platform-connectors"

// DeadLettersOf is the source of the dead letters of a node's connector.
func DeadLettersOf(node string) string { return "platform-connectors/" + node }

// Fatal tells people of events that killed the connector and are passed over: by a
// dead letter in the store and, with Kubernetes, by an Event of the Node. The
// event's bytes stay with the dead letters on the node.
type Fatal struct {
	Spool interface {
		Untold() []spool.Fatal
		Told(index uint64) error
	}
	Source   Source
	NodeName string
	// Node is the connector's own Node as it was last seen, or nil; Client is nil
	// without Kubernetes.
	Node   func() *corev1.Node
	Client *nodeclient.Client
	Clock  clock.Clock
	Log    *slog.Logger
}

// Run tells of each such event once, however long that takes.
func (f *Fatal) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.tell(ctx)
		if err == nil {
			return nil
		}
		f.Log.Warn("telling of events that killed the process failed, trying again", "error", err, "after", tellAgain)
		retry.Sleep(ctx, f.Clock, tellAgain)
	}
	return nil
}

func (f *Fatal) tell(ctx context.Context) error {
	for _, e := range f.Spool.Untold() {
		sink, err := f.Source.Sink(ctx)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		body, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encoding a dead letter: %w", err)
		}
		text := fmt.Sprintf("event %s killed the connector of node %s each time it was looked at, alone: it was not stored and is passed over; "+
			"its bytes are in dead-letters.jsonl of the node's spool, entry %d", e.ID, f.NodeName, e.Index)
		deadLetter := store.DeadLetter{ID: e.ID, Source: DeadLettersOf(f.NodeName), Reason: text, Body: body, At: f.Clock.Now().UTC()}
		if err := errors.Join(sink.Dead(ctx, deadLetter), f.event(ctx, text)); err != nil {
			return err
		}
		if err := f.Spool.Told(e.Index); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fatal) event(ctx context.Context, text string) error {
	if f.Client == nil {
		return nil
	}
	node := f.Node()
	if node == nil {
		return errors.New("the Node was not seen yet")
	}
	return nodeclient.CountFault(ctx, f.Client.Events, node, nodeclient.FaultEvent{
		Component: Component, Reason: "EventSetAside", Message: text, Times: 1, Last: f.Clock.Now(),
	})
}
