package conditions

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

const (
	// LateDelivery is how long events are on their way before the condition shows it: a try of a
	// connector takes 25 seconds at most.
	LateDelivery = 30 * time.Second
	// textEvery is the least time between two writes that change the text alone.
	textEvery = 5 * time.Minute
	// maxProblem bounds the text of a problem, in bytes.
	maxProblem = 512
)

// Backlog is what a connector has begun to hand to the store and the store has not taken.
type Backlog struct {
	// Since is when it began; zero if nothing waits.
	Since time.Time
	// Fatal: a fatal fault that acts is among it.
	Fatal bool
	// Problem is why the last try failed, or empty.
	Problem string
	// Delivered: the store has taken something since this start of the connector.
	Delivered bool
}

// DeliveryReason is why a condition is written, or not.
type DeliveryReason string

// Reasons.
const (
	// Delivered: no event has waited for the store for 30 seconds, and the condition `EventDelivery` of the Node
	// needs no change. Action: none.
	Delivered DeliveryReason = "Delivered"
	// Recovered: the condition reports that events wait, and they reach the store again, so the condition becomes
	// False. Action: none.
	Recovered DeliveryReason = "Recovered"
	// Waits: events have waited for the store or a gateway for 30 seconds, so the condition `EventDelivery`
	// becomes True. Action: check the gateway, the store and the network of the node. The text of the condition
	// has the last error.
	Waits DeliveryReason = "Waiting"
	// AlreadyReported: events wait and the condition `EventDelivery` reports that already, so nothing is written. Action:
	// check the gateway, the store and the network of the node. The text of the condition has the last error.
	AlreadyReported DeliveryReason = "AlreadyReported"
	// Another: events wait since another time or for another cause than the condition `EventDelivery` reports, so
	// its text is updated, at most every five minutes. Action: check the gateway, the store and the network of the
	// node. The text of the condition has the last error.
	Another DeliveryReason = "Changed"
)

// DecideDelivery compares the backlog with the Node's condition, nil if it has none, and returns
// the condition to write with Recovered, Waits and Another.
func DecideDelivery(b Backlog, shown *corev1.NodeCondition, now time.Time) (corev1.NodeCondition, DeliveryReason) {
	c := corev1.NodeCondition{
		Type: nodemark.EventDelivery, Status: corev1.ConditionFalse,
		Reason: nodemark.HealthyReason(nodemark.EventDelivery), Message: record.HealthyMessage,
	}
	shownTrue := shown != nil && shown.Status == corev1.ConditionTrue
	if b.Since.IsZero() || now.Sub(b.Since) < LateDelivery {
		if shownTrue && (b.Since.IsZero() || b.Delivered) {
			return c, Recovered
		}
		return c, Delivered
	}
	c.Status, c.Reason, c.Message = corev1.ConditionTrue, nodemark.UnhealthyReason(nodemark.EventDelivery), backlogText(b)
	switch {
	case !shownTrue:
		return c, Waits
	case shown.Message != c.Message && now.Sub(shown.LastHeartbeatTime.Time) >= textEvery:
		return c, Another
	}
	return c, AlreadyReported
}

func backlogText(b Backlog) string {
	among, problem := "", b.Problem
	if b.Fatal {
		among = ", including a fatal fault"
	}
	if problem == "" {
		problem = "no response yet"
	}
	return fmt.Sprintf("events have been pending on this node since %s%s: %s", b.Since.UTC().Format(time.RFC3339), among, strings.ToValidUTF8(problem[:min(len(problem), maxProblem)], ""))
}
