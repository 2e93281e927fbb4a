package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// orphanedInterval is how often orphaned faults are looked for.
const orphanedInterval = time.Minute

// orphanedReason: a fault that was reported as PROCESS is open and its monitor reports PERSIST_ONLY now, so a
// recovery of the monitor does not end it. Action: set the monitor back to PROCESS until it has reported the
// recovery, or run `nvsentinel release <node>`.
const orphanedReason = "FaultOrphaned"

// OrphanedTask looks for open faults whose publisher reports PERSIST_ONLY now: it counts
// them, and reports each once with an Event on its Node. Nothing is lifted and nothing
// is decided by it.
func (rc *Reconciler) OrphanedTask() consume.Task {
	reported := map[string]bool{}
	return consume.Task{Name: "orphaned faults", Every: orphanedInterval, Do: func(ctx context.Context) error {
		return rc.reportOrphaned(ctx, reported)
	}}
}

// reportOrphaned looks once; reported are the records that were reported before.
func (rc *Reconciler) reportOrphaned(ctx context.Context, reported map[string]bool) error {
	var open []record.Record
	err := rc.pages(ctx, record.OpenOfNode(""), func(page []record.Record) error {
		open = append(open, page...)
		return nil
	})
	if err != nil {
		return err
	}
	found, err := store.FindOrphaned(ctx, rc.Reported, open)
	if err != nil {
		return err
	}
	rc.Metrics.OrphanedFaults.Reset()
	for _, f := range found {
		e := f.Open.Event
		rc.Metrics.OrphanedFaults.WithLabelValues(e.Agent).Inc()
		if reported[f.Open.ID] {
			continue
		}
		rc.Log.Warn("orphaned fault found, its publisher reports PERSIST_ONLY", "node", e.NodeName, "record", f.Open.ID,
			"agent", e.Agent, "check", e.CheckName, "newest", f.Newest.ID)
		if err := rc.recordOrphaned(ctx, f); err != nil {
			return err
		}
		reported[f.Open.ID] = true
	}
	return nil
}

func (rc *Reconciler) recordOrphaned(ctx context.Context, f store.OrphanedFault) error {
	e := f.Open.Event
	node, err := rc.Nodes.Read(ctx, e.NodeName)
	if err != nil || node == nil {
		return err
	}
	rc.Nodes.Note(ctx, node, Event{
		Warning: true, Reason: orphanedReason,
		Message: fmt.Sprintf("Fault %s of %s (%s) is open, but %s now reports PERSIST_ONLY: only a PROCESS recovery ends the fault. "+
			"Set the monitor to PROCESS until it has reported the recovery, or release the node", f.Open.ID, e.Agent, e.CheckName, e.Agent),
	})
	return nil
}
