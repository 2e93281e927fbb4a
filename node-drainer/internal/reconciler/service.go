package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the drains as a consumer of the store: what is quarantined, or in
// draining, and what has to be kept drained, is looked at.
func (d *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: "node_drainer", Store: d.records, Selector: record.NodeQuarantineStatus(), Own: d.records,
		Key: d.key, Reconcile: d.Handle, Backlog: consumer.Open(d.records, all, Outstanding()), Workers: workers,
		Sources: []func(context.Context, func(string)) error{d.Source, d.cordons.source},
	}
}

// key is the node of a delivery, but of a fault whose Node does not bear its session yet:
// nothing can be done before it does, and then the Node's change enqueues it, or the
// delivery that tells of the mark.
func (d *Reconciler) key(r record.Record) string {
	if d.cordons.hear(r) {
		d.tracker.open(r.Event.NodeName) // before the Node is looked at: its change is not missed
		if d.session(r.Event.NodeName) != r.Status.Session {
			return ""
		}
	}
	return r.Event.NodeName
}

// session is the session that the cached Node bears, or empty.
func (d *Reconciler) session(name string) string {
	node, err := d.cluster.Node(name)
	if err != nil || node == nil {
		return ""
	}
	return nodemark.Session(node)
}

// shows says whether the cached Node bears a session.
func (d *Reconciler) shows(name string) bool { return d.session(name) != "" }

func all(record.Record) bool { return true }
