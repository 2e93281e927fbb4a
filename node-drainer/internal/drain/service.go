package drain

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the drains as a consumer of the store: what is quarantined, or in
// draining, and what has to be kept drained, is looked at.
func (d *Drain) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: "node_drainer", Store: d.records, Selector: record.NodeQuarantineStatus(), Own: d.records,
		Reconcile: d.Handle, Backlog: consumer.Open(d.records, all, Outstanding()), Workers: workers,
		Synced: d.world.WaitForSync, Bells: []func(context.Context, func(string)) error{d.Bell},
	}
}

func all(record.Record) bool { return true }
