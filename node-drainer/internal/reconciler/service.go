package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the drains as a consumer of the store: what is quarantined, or in
// draining, and what has to be kept drained, is looked at.
func (rc *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: "node_drainer", Store: rc.records, Selector: record.NodeQuarantineStatus(), Own: rc.records,
		Key: rc.key, Reconcile: rc.Handle, Backlog: consumer.Open(rc.records, all, Outstanding()), Workers: workers,
		Sources: []func(context.Context, func(string)) error{rc.Source, rc.cordons.source},
	}
}

// key is the node of a delivery, but of a fault whose Node does not bear its session yet:
// nothing can be done before it does, and then the Node's change enqueues it, or the
// delivery that tells of the mark.
func (rc *Reconciler) key(r record.Record) string {
	if rc.cordons.hear(r) {
		rc.tracker.open(r.Event.NodeName) // before the Node is looked at: its change is not missed
		if rc.session(r.Event.NodeName) != r.Status.Session {
			return ""
		}
	}
	return r.Event.NodeName
}

// session is the session that the cached Node bears, or empty.
func (rc *Reconciler) session(name string) string {
	node, err := rc.cluster.Node(name)
	if err != nil || node == nil {
		return ""
	}
	return nodemark.Session(node)
}

// shows says whether the cached Node bears a session.
func (rc *Reconciler) shows(name string) bool { return rc.session(name) != "" }

func all(record.Record) bool { return true }
