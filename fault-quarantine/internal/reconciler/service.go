package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the reconciler as a consumer of the store: what is new is evaluated, and evaluated
// again when the Nodes, the budget or the emergency stop change.
func (rc *Reconciler) Service(name string, workers int, nodes *kube.Nodes, fatal *consumer.CrashMemory) *consumer.Service {
	vet := fatal.Vetting(Present, rc.Try)
	vet.Report = rc.ReportDeadLetter
	return &consumer.Service{
		Name: name, Metrics: consume.Names{
			Namespace: "nvsentinel_fault_quarantine", Handling: "fault_quarantine_event_handling_duration_seconds",
			Depth: "nvsentinel_fault_quarantine_queue_depth",
		}, Store: fatal.WithoutDeadLetters(), Selector: record.ProcessableHealthEventInserts(),
		Reconcile: rc.Handle, Backlog: rc.Backlog, Workers: workers, Vet: vet,
		Sources: []func(context.Context, func(string)) error{nodes.Source(rc.Concerns), rc.Quota.Source, rc.PauseSource(rc.Pause)},
		Tasks: []consume.Task{rc.OrphanedTask(), rc.Expiry(), {Name: "nodes counted by budgets", Do: func(ctx context.Context) error {
			return nodes.Source(Counts)(ctx, rc.Quota.Changed)
		}}},
	}
}
