package watch

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/report"
)

func TestRebootThatCuredIsReportedAfterSettling(t *testing.T) {
	for _, survives := range []bool{false, true} {
		name := "monitor restarts"
		if survives {
			name = "monitor survives"
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.log(fallen)
			n.passes()
			n.expect("79 RESTART_BM boot-1")
			n.boot("boot-2")
			if !survives {
				n.restart()
			}
			n.passes()
			n.wait(2*time.Minute - time.Second)
			n.expect("79 RESTART_BM boot-1")
			n.wait(time.Second)
			n.wait(time.Hour)
			n.expect("79 RESTART_BM boot-1", "healthy boot-2")
			e := n.delivered()[1]
			if e.IsFatal || len(e.EntitiesImpacted) != 0 || len(e.ErrorCode) != 0 || e.Message != "No Health Failures" ||
				e.ProcessingStrategy != record.Process || e.Metadata["seq"] != "2" {
				t.Errorf("healthy event %+v", e)
			}
			// Settled is settled: no second one.
			n.restart()
			n.wait(time.Hour)
			n.expect("79 RESTART_BM boot-1", "healthy boot-2")
			if v := n.value("nvsentinel_syslog_monitor_reboots_total"); v != 0 {
				t.Errorf("reboots counted after the restart: %v", v)
			}
		})
	}
}

func TestMissingOrUnreadableStateIsNoProof(t *testing.T) {
	for name, harm := range map[string]func(n *node){
		"missing":    func(n *node) { n.remove("outbox.db") },
		"damaged":    func(n *node) { n.write("outbox.db", "scribble") },
		"odd state":  func(n *node) { n.scribble([]byte("{")) },
		"no boot id": func(n *node) { n.scribble([]byte(`{"boot":""}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.passes()
			n.end()
			harm(n)
			n.boot("boot-2")
			n.start()
			n.passes()
			n.wait(time.Hour)
			n.expect()
			// The boot is known from here on.
			n.boot("boot-3")
			n.passes()
			n.wait(2 * time.Minute)
			n.expect("healthy boot-3")
		})
	}
}

func (n *node) remove(name string) {
	n.t.Helper()
	if err := os.Remove(n.path(name)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) scribble(state []byte) {
	n.t.Helper()
	b, err := report.Open(n.path("outbox.db"), report.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := b.Write(func(tx *report.Tx) error { return tx.SetNote(stateNote, state) }); err != nil {
		n.t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		n.t.Fatal(err)
	}
}

func TestFaultUnderTheNewBootIsSentInstead(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen)
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.wait(time.Minute)
	n.log(fallen)
	n.passes()
	n.wait(time.Hour)
	n.expect("79 RESTART_BM boot-1", "79 RESTART_BM boot-2")
	// The next reboot is another chance.
	n.boot("boot-3")
	n.passes()
	n.wait(2 * time.Minute)
	n.expect("79 RESTART_BM boot-1", "79 RESTART_BM boot-2", "healthy boot-3")
}

func TestHarmlessCodeOnlyProlongsTheSettling(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen)
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.wait(110 * time.Second)
	n.log(line("13", "0000:3b:00"))
	n.passes()
	n.wait(119 * time.Second)
	n.expect("79 RESTART_BM boot-1", "13 NONE boot-2")
	n.wait(time.Second)
	n.expect("79 RESTART_BM boot-1", "13 NONE boot-2", "healthy boot-2")
}

func TestFaultThatNoRebootCuresStaysOpen(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen, line("74", "0000:3b:00"))
	n.passes()
	n.boot("boot-2")
	n.restart() // the codes are remembered beside the outbox
	n.delivered()
	n.passes()
	n.wait(time.Hour)
	n.log(fallen)
	n.passes()
	n.delivered()
	n.boot("boot-3")
	n.passes()
	n.wait(time.Hour)
	n.expect("79 RESTART_BM boot-1", "74 CONTACT_SUPPORT boot-1", "healthy boot-2", "79 RESTART_BM boot-2", "healthy boot-3")
	for _, e := range n.delivered() {
		if e.IsHealthy && e.CheckName == xid.Check && (len(e.EntitiesImpacted) == 0 || !slices.Equal(e.ErrorCode, []string{"79"})) {
			t.Errorf("it clears %v of %v", e.ErrorCode, e.EntitiesImpacted)
		}
	}
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsXIDError", "NotCured"); v != 2 {
		t.Errorf("withheld %v times, want 2", v)
	}
}

func TestUnreadEndOfThePastBootStaysItsOwn(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen)
	n.passes()
	n.end()
	n.log(line("119", "0000:3b:00"), line("120", "0000:3b:00")) // the node hangs, the monitor is down
	n.boot("boot-2")
	n.start()
	n.passes()
	n.log(line("31", "0000:3b:00"))
	n.passes()
	n.delivered()
	n.wait(2 * time.Minute)
	n.expect("79 RESTART_BM boot-1", "119 COMPONENT_RESET boot-1", "120 COMPONENT_RESET boot-1", "31 NONE boot-2", "healthy boot-2")
}

func TestUncuredFaultFoundInTheUnreadEndWithholdsToo(t *testing.T) {
	n := newNode(t)
	n.log("usb 1-1: new device")
	n.start()
	n.passes()
	n.wait(notePace)
	n.end()
	n.log(line("74", "0000:3b:00"))
	n.boot("boot-2")
	n.start()
	n.passes()
	n.delivered()
	n.wait(time.Hour)
	n.expect("74 CONTACT_SUPPORT boot-1")
}

func TestOldEventsAreDeliveredFirst(t *testing.T) {
	n := newNode(t)
	n.connector.Cut()
	n.start()
	n.log(fallen)
	n.passes()
	n.boot("boot-2")
	n.restart()
	n.passes()
	n.wait(time.Hour)
	if s := n.outbox.Stats(); s.Entries != 1 || s.LastSeq != 1 {
		t.Errorf("outbox %+v; want only the old event", s)
	}
	n.connector.Listen(t)
	n.delivered()
	n.wait(0)
	n.expect("79 RESTART_BM boot-1", "healthy boot-2")
}

func TestRecoveryCarriesTheStrategyOfItsFaults(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after record.Strategy
		want          []string
	}{
		{"switched to PERSIST_ONLY with an open fault", record.Process, record.PersistOnly, []string{"79 RESTART_BM boot-1", "healthy boot-2"}},
		{"switched to PROCESS", record.PersistOnly, record.Process, []string{"79 RESTART_BM persist-only boot-1", "healthy persist-only boot-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.policy.Strategy = c.before
			n.start()
			n.log(fallen)
			n.passes()
			n.policy.Strategy = c.after
			n.restart()
			n.passes()
			n.boot("boot-2")
			n.passes()
			n.delivered()
			n.wait(2 * time.Minute)
			n.expect(c.want...)
		})
	}
}

func TestRestartWhileSettlingSettlesAgain(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen)
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.delivered()
	n.wait(119 * time.Second)
	n.restart()
	n.passes()
	n.wait(119 * time.Second)
	n.expect("79 RESTART_BM boot-1")
	n.wait(time.Second)
	n.expect("79 RESTART_BM boot-1", "healthy boot-2")
}

func TestTwoRebootsOweOneRecovery(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(fallen)
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.delivered()
	n.wait(time.Minute)
	n.boot("boot-3")
	n.passes()
	n.wait(90 * time.Second)
	n.expect("79 RESTART_BM boot-1")
	n.wait(30 * time.Second)
	n.wait(time.Hour)
	n.expect("79 RESTART_BM boot-1", "healthy boot-3")
}

func TestFullOutboxDelaysTheRecovery(t *testing.T) {
	n := newNode(t)
	n.options.MaxEntries = 1
	n.start()
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.connector.Cut()
	n.log(line("13", "0000:3b:00"))
	n.passes()
	n.wait(3 * time.Minute)
	if s := n.outbox.Stats(); s.LastSeq != 1 {
		t.Errorf("outbox %+v; want only the first event", s)
	}
	n.connector.Listen(t)
	n.until("the recoveries to fit", func() bool {
		n.passes()
		return n.outbox.Stats().LastSeq == 4
	})
	n.expect("13 NONE boot-2", "healthy boot-2")
}
