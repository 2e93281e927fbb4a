package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the reconciler as a consumer of the store: what is new is judged, and judged
// again when the Nodes, the budget or the emergency brake change.
func (rc *Reconciler) Service(name string, workers int, nodes *kube.Nodes, fatal *consumer.Aside) *consumer.Service {
	vet := fatal.Vetting(Present, rc.Try)
	vet.Tell = rc.Tell
	return &consumer.Service{
		Name: name, Metrics: consume.Names{
			Namespace: "nvsentinel_fault_quarantine", Handling: "fault_quarantine_event_handling_duration_seconds",
			Depth: "nvsentinel_fault_quarantine_queue_depth",
		}, Store: fatal.Rest(), Selector: record.ProcessableHealthEventInserts(),
		Reconcile: rc.Handle, Backlog: rc.Backlog, Workers: workers, Vet: vet,
		Sources: []func(context.Context, func(string)) error{nodes.Source(rc.Concerns), rc.Quota.Source, rc.BrakeSource(rc.Brake)},
		Tasks: []consume.Task{rc.Stranded(), rc.Expiry(), {Name: "nodes counted by budgets", Do: func(ctx context.Context) error {
			return nodes.Source(Counts)(ctx, rc.Quota.Changed)
		}}},
	}
}
