package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/aside"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the reconciler as a consumer of the store: what is new is judged, and judged
// again when the Nodes, the budget or the emergency brake change.
func (d *Reconciler) Service(name string, workers int, nodes *kube.Nodes, fatal *aside.Register) *consumer.Service {
	vet := fatal.Vetting(Present, d.Try)
	vet.Tell = d.Tell
	return &consumer.Service{
		Name: name, Metrics: "fault_quarantine", Store: fatal.Rest(), Selector: record.ProcessableHealthEventInserts(),
		Reconcile: d.Handle, Backlog: d.Backlog, Workers: workers, Vet: vet,
		Sources: []func(context.Context, func(string)) error{nodes.Source(d.Concerns), d.Quota.Source, d.BrakeSource(d.Brake)},
		Tasks: []consume.Task{d.Stranded(), d.Expiry(), {Name: "nodes that count", Do: func(ctx context.Context) error {
			return nodes.Source(Counts)(ctx, d.Quota.Changed)
		}}},
	}
}
