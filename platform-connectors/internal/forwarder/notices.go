package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// noticeEvery is the time between two writes of notices.
const noticeEvery = time.Minute

// Reasons of Events about what becomes of a node's events.
const (
	// EventsCounted: the node has brought more than its quota of the day, so health events with PERSIST_ONLY and
	// repeats are counted and not stored. Action: correct the monitor that sends so many. If they are right, raise
	// `platformConnectorsGateway.recordsPerDayPerNode` and `bytesPerDayPerNode`.
	EventsCounted = "QuotaExceeded"
	// deadLetterReason: an event crashed the connector each time, so it is a dead letter of the node. Action: check the node
	// yourself, and report the event as a defect.
	deadLetterReason = "EventDeadLettered"
	// DeadLettersDropped: the node has more dead letters than are kept, so the oldest are deleted. Action: correct
	// the cause that the dead letters name.
	DeadLettersDropped = "DeadLettersDropped"
	// EventsWaiting: health events of the node have waited for the store or a gateway for 30 seconds. Action:
	// check the gateway, the store and the network of the node. The text of the Event has the last error.
	EventsWaiting = "EventsWaiting"
	// EventsRejected: health events of a monitor were rejected permanently, so no fault or recovery follows from
	// them. Action: correct the cause that the Event names, usually the monitor or `[[publishers.agent]]` of the
	// connectors.
	EventsRejected = "EventsRejected"
)

// maxDetails bounds the different details in the Events of one process; one detail is one
// Event of the Node.
const maxDetails = 32

// maxDetail bounds a detail, in bytes.
const maxDetail = 768

// noticeTexts are the texts of the Events; each is one Event, whose count rises.
var noticeTexts = map[string]string{
	EventsCounted: "This node has exceeded its daily event quota: PERSIST_ONLY events and repeated faults are counted and not stored, " +
		"run nvsentinel status to see how many",
	EventsWaiting:      "Events of this node do not reach the store and are pending on the node: see the condition EventDelivery for the start and the cause",
	DeadLettersDropped: "This node has more dead letters than the limit: the oldest were deleted",
	EventsRejected:     "Events of a publisher on this node were rejected permanently: they lead to no action, and the publisher keeps them as dead letters",
}

// notice is one Event of the Node.
type notice struct{ reason, detail string }

// text returns the message of the Event.
func (n notice) text() string {
	if n.detail == "" {
		return noticeTexts[n.reason]
	}
	return noticeTexts[n.reason] + ": " + n.detail
}

// Notices are what people have to know, reported as Events of the Node and in the log. A nil
// one reports nothing.
type Notices struct {
	// Node is the connector's own Node as it was last seen, or nil; Client is nil
	// without Kubernetes.
	Node   func() *corev1.Node
	Client *nodeclient.Client
	Clock  clock.WithTicker
	Log    *slog.Logger

	mu         sync.Mutex
	unreported map[notice]int
	details    map[notice]bool // that were added
}

// Add notes n more of a reason.
func (x *Notices) Add(reason string, n int) { x.AddDetail(reason, "", n) }

// AddDetail notes n more of a reason with a detail, of which there are not many.
func (x *Notices) AddDetail(reason, detail string, n int) {
	if x == nil || n == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unreported == nil {
		x.unreported, x.details = map[notice]int{}, map[notice]bool{}
	}
	one := notice{reason, strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "")}
	if one.detail != "" && !x.details[one] {
		if len(x.details) >= maxDetails {
			one.detail = ""
		} else {
			x.details[one] = true
		}
	}
	x.unreported[one] += n
}

// Run reports the notices until ctx ends.
func (x *Notices) Run(ctx context.Context) error {
	retry.Every(ctx, x.Clock, noticeEvery, func() { x.writeEvents(ctx) })
	return nil
}

func (x *Notices) writeEvents(ctx context.Context) {
	x.mu.Lock()
	pending := maps.Clone(x.unreported)
	clear(x.unreported)
	x.mu.Unlock()
	for one, n := range pending {
		x.Log.Warn(one.text(), "reason", one.reason, "times", n)
		if err := x.event(ctx, one, n); err != nil {
			x.Log.Warn("Event write failed, retrying", "reason", one.reason, "error", err)
			x.AddDetail(one.reason, one.detail, n)
		}
	}
}

func (x *Notices) event(ctx context.Context, one notice, n int) error {
	if x.Client == nil {
		return nil
	}
	node := x.Node()
	if node == nil {
		return errors.New("the Node has not been read yet")
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return nodeclient.CountFault(ctx, x.Client.Events, node, nodeclient.FaultEvent{
		Component: Component, Reason: one.reason, Message: one.text(), Times: int32(min(n, 1<<30)), Last: x.Clock.Now(),
	})
}

// eventRetryDelay is the time between two tries to report.
const eventRetryDelay = 15 * time.Second

// Component is how the connector calls itself in Events.
const Component = "nvsentinel-platform-connectors"

// DeadLettersOf is the source of the dead letters of a node's connector.
func DeadLettersOf(node string) string { return "platform-connectors/" + node }

// Fatal informs people of events that killed the connector and are passed over: by a
// dead letter in the store and, with Kubernetes, by an Event of the Node. The
// event's bytes stay with the dead letters on the node.
type Fatal struct {
	Spool interface {
		Unreported() []spool.Fatal
		MarkReported(index uint64) error
	}
	Sink     Sink
	NodeName string
	// Node is the connector's own Node as it was last seen, or nil; Client is nil
	// without Kubernetes.
	Node   func() *corev1.Node
	Client *nodeclient.Client
	Clock  clock.Clock
	Log    *slog.Logger
}

// Run reports each such event once, however long that takes.
func (f *Fatal) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.report(ctx)
		if err == nil {
			return nil
		}
		f.Log.Warn("report of process-killing events failed, retrying", "error", err, "after", eventRetryDelay)
		retry.Sleep(ctx, f.Clock, eventRetryDelay)
	}
	return nil
}

func (f *Fatal) report(ctx context.Context) error {
	for _, e := range f.Spool.Unreported() {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		body, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encoding a dead letter: %w", err)
		}
		text := fmt.Sprintf("Event %s killed the connector of node %s each time it was processed on its own, so it was not stored and is skipped: "+
			"its content is in dead-letters.jsonl of the write-ahead log of the node, entry %d", e.ID, f.NodeName, e.Index)
		deadLetter := store.DeadLetter{ID: e.ID, Source: DeadLettersOf(f.NodeName), Reason: text, Body: body, At: f.Clock.Now().UTC()}
		if err := errors.Join(f.Sink.Dead(ctx, deadLetter), f.event(ctx, text)); err != nil {
			return err
		}
		if err := f.Spool.MarkReported(e.Index); err != nil {
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
		return errors.New("the Node has not been read yet")
	}
	return nodeclient.CountFault(ctx, f.Client.Events, node, nodeclient.FaultEvent{
		Component: Component, Reason: deadLetterReason, Message: text, Times: 1, Last: f.Clock.Now(),
	})
}
