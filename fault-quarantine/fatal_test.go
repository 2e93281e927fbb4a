package faultquarantine_test

import (
	"database/sql"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// TestARecordThatKillsTheService has the process die, as of a memory that does not
// suffice, whenever it evaluates one record of one node. The other nodes' faults are
// served from the fourth life on, that node's other faults once the record is
// found; it is a dead letter then that names it, and nobody has touched it.
func TestARecordThatKillsTheService(t *testing.T) {
	testkit.Long(t, "internal/consume TestPoisonRecordIsDeadLettered lives the same lives, store-client/consumer keeps the register")
	s := here(t)
	s.configure("[circuitBreaker]\npercentage = 100\n" + tainting)
	names := s.nodes("fatal", 3, nil)
	first := s.fault(names[0])
	bad := s.fault(names[0], func(r *record.Record) { r.Event.Message = "fatal to fault-quarantine" })
	others := []record.Record{s.fault(names[1]), s.fault(names[2])}
	const fatal = "NVSENTINEL_FATAL_TEXT=fatal to fault-quarantine"
	served := 0
	for run := 1; run <= 6; run++ {
		p := s.start(fatal)
		p.end()
		if p.err == nil {
			t.Fatalf("life %d ended well", run)
		}
		if r := s.reasons(); served == 0 && r[record.Matched] >= len(others) {
			served = run
		}
	}
	if served == 0 || served > 4 {
		t.Errorf("the other nodes were served in life %d, want 4 at most", served)
	}
	for run := range 3 { // the last one with nothing to find
		p := s.start(fatal)
		p.awaitMetric("nvsentinel_fault_quarantine_dead_lettered_records 1")
		if run == 0 {
			s.waitForEvent(names[0], corev1.EventTypeWarning, "RecordDeadLettered", bad.ID)
		}
		for _, r := range append(others, first) {
			s.await(r.ID, record.Matched, record.Quarantined)
			s.awaitNode(r.Event.NodeName, quarantined)
		}
		p.stop()
	}
	letters, err := s.store.DeadLetters(t.Context(), consumer.PoisonRecordSource("fault-quarantine"))
	if err != nil || len(letters) != 1 || letters[0].ID != bad.ID {
		t.Errorf("dead letters %+v, %v; want one of %s", letters, err, bad.ID)
	}
	if r := s.get(bad.ID); r.Evaluated() || r.Revision > 10 {
		t.Errorf("the record that was set aside: %+v", r.Status)
	}
	// Somebody fixed the program, and takes the letter away.
	db, err := sql.Open("sqlite", strings.TrimPrefix(s.dsn, "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "DELETE FROM dead_letters WHERE source = $1", consumer.PoisonRecordSource("fault-quarantine")); err != nil {
		t.Fatal(err)
	}
	p := s.start()
	s.await(bad.ID, record.Matched, record.AlreadyQuarantined)
	p.stop()
	testkit.Until(t, waitTimeout, func() bool { return len(s.inQuarantine(names)) == len(names) })
}
