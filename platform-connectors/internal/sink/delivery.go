package sink

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// This part of the package shows on the Node, and in a metric, that events of the node do
// not reach the store. The connector accepts events all the same: its readiness and its
// socket do not depend on it.

const (
	// every is the time between two looks.
	deliveryEvery = 5 * time.Second
	// deadline bounds one write.
	deliveryDeadline = 10 * time.Second
)

// DeliveryWatch looks at what waits and reports it.
type DeliveryWatch struct {
	// Backlog is what waits now.
	Backlog func() conditions.Backlog
	// OnLate is called when events begin to wait for long.
	OnLate func()
	// Node is the connector's own Node as it was last seen, or nil; Client is nil
	// without Kubernetes.
	Node   func() *corev1.Node
	Client *nodeclient.Client
	Clock  clock.WithTicker
	Log    *slog.Logger

	seconds *prometheus.GaugeVec
	outage  retry.Outage
	late    bool
}

// Register registers the metric.
func (w *DeliveryWatch) Register(r prometheus.Registerer) {
	w.seconds = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nvsentinel_connector_delivery_delay_seconds",
		Help: "Time in seconds for which the connector has tried to send its oldest events to the store, or 0 if none wait. The label fatal shows whether a fatal PROCESS fault is among them.",
	}, []string{"fatal"})
	r.MustRegister(w.seconds)
	w.measure(conditions.Backlog{})
}

// Run looks until ctx ends.
func (w *DeliveryWatch) Run(ctx context.Context) error {
	retry.Every(ctx, w.Clock, deliveryEvery, func() {
		err := w.poll(ctx)
		if begins, _ := w.outage.Note(err); begins {
			w.Log.Warn("condition EventDelivery update failed, retrying", "error", err)
		}
	})
	return nil
}

func (w *DeliveryWatch) poll(ctx context.Context) error {
	b, now := w.Backlog(), w.Clock.Now()
	w.measure(b)
	var have []corev1.NodeCondition
	var shown *corev1.NodeCondition
	var node *corev1.Node
	if w.Client != nil {
		node = w.Node()
	}
	if node != nil {
		have = node.Status.Conditions
		if i := slices.IndexFunc(have, func(c corev1.NodeCondition) bool { return c.Type == nodemark.EventDelivery }); i >= 0 {
			shown = &have[i]
		}
	}
	want, reason := conditions.DecideDelivery(b, shown, now)
	w.logDelay(want.Status == corev1.ConditionTrue, want.Message)
	if node == nil || reason == conditions.Delivered || reason == conditions.AlreadyReported {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deliveryDeadline)
	defer cancel()
	return Patch(ctx, w.Client.Nodes, node.Name, conditions.Changes(have, []corev1.NodeCondition{want}, now))
}

// logDelay logs once that events have waited for long, and once that they no longer do.
func (w *DeliveryWatch) logDelay(late bool, text string) {
	switch {
	case late && !w.late:
		w.Log.Warn("event delivery failing", "detail", text)
		w.OnLate()
	case !late && w.late:
		w.Log.Info("event delivery recovered")
	}
	w.late = late
}

func (w *DeliveryWatch) measure(b conditions.Backlog) {
	for _, fatal := range []bool{false, true} {
		seconds := 0.0
		if !b.Since.IsZero() && b.Fatal == fatal {
			seconds = max(w.Clock.Since(b.Since).Seconds(), 0)
		}
		w.seconds.WithLabelValues(strconv.FormatBool(fatal)).Set(seconds)
	}
}
