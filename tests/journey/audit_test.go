package journey

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestAuditSeesIllegalMoves: the store refuses an illegal transition, so only
// made-up records can show that the audit would see one.
func TestAuditSeesIllegalMoves(t *testing.T) {
	with := func(q record.Quarantine, e record.Eviction) record.Record {
		r := record.Record{ID: "1", Event: record.Event{NodeName: "n"}}
		r.Status.NodeQuarantined, r.Status.UserPodsEvictionStatus.Status = q, e
		return r
	}
	a := newAudit()
	a.see(with(record.Quarantined, record.EvictionInProgress))
	a.see(with(record.QuarantineCanceled, record.EvictionCanceled))
	if bad := a.illegal("n"); len(bad) > 0 {
		t.Errorf("legal moves were called illegal: %v", bad)
	}
	a.see(with(record.Quarantined, record.EvictionSucceeded))
	if bad := a.illegal("n"); len(bad) != 2 {
		t.Errorf("two illegal moves, found %v", bad)
	}
}
