package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the drains as a consumer of the store: what is quarantined, or in
// draining, and what has to be kept drained, is looked at.
func (d *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: "node_drainer", Store: d.records, Selector: record.NodeQuarantineStatus(), Own: d.records,
		Reconcile: d.Handle, Backlog: consumer.Open(d.records, all, Outstanding()), Workers: workers,
		Synced: d.cluster.WaitForSync, Sources: []func(context.Context, func(string)) error{d.Source},
	}
}

func all(record.Record) bool { return true }
