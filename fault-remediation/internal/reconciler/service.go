package reconciler

import (
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the reconciler as a consumer of the store: every node that a record still
// needs a step for is looked at.
func (d *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: "fault_remediation", Store: d.Records, Selector: record.QuarantinedAndDrainedNodes(), Own: d.Records,
		Reconcile: d.Handle, Backlog: consumer.Open(d.Records, decision.Unsettled, record.OpenOfNode(""), Unsettled()), Workers: workers,
	}
}
