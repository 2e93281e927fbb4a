package recovery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestOnlyAnotherRememberedBootIsProof(t *testing.T) {
	for _, c := range []struct {
		stored, current string
		want            Proof
	}{
		{"", "", Unknown}, {"a", "", Unknown}, {"", "a", FirstSight}, {"a", "a", SameBoot}, {"a", "b", Rebooted},
	} {
		if got := Prove(c.stored, c.current); got != c.want {
			t.Errorf("stored %q, current %q: %s, want %s", c.stored, c.current, got, c.want)
		}
	}
}

func TestDecide(t *testing.T) {
	start := time.Unix(1000, 0)
	policy := Policy{Settle: 2 * time.Minute}
	quiet := View{Pending: true, CaughtUp: true, QuietSince: start}
	with := func(change func(*View)) View { v := quiet; change(&v); return v }
	for _, c := range []struct {
		name string
		view View
		now  time.Time
		want Decision
	}{
		{"no reboot", View{CaughtUp: true, Uncured: []string{"74"}}, start, Decision{Nothing, NoReboot, 0}},
		{"old events wait", with(func(v *View) { v.OldWaiting = true }), start.Add(time.Hour), Decision{DeliverOld, OldEventsFirst, 0}},
		{"log not read", with(func(v *View) { v.CaughtUp = false }), start.Add(time.Hour), Decision{Settle, ReadingLog, 2 * time.Minute}},
		{"settling begins", quiet, start, Decision{Settle, Settling, 2 * time.Minute}},
		{"almost settled", quiet, start.Add(2*time.Minute - 1), Decision{Settle, Settling, 1}},
		{"settled", quiet, start.Add(2 * time.Minute), Decision{ReportHealthy, Settled, 0}},
		{"clock set back", quiet, start.Add(-time.Hour), Decision{Settle, Settling, time.Hour + 2*time.Minute}},
		{"fault under the new boot", with(func(v *View) { v.Faulted, v.OldWaiting, v.CaughtUp = true, true, false }), start, Decision{Withhold, FaultInstead, 0}},
		{"fault that no reboot cures", with(func(v *View) { v.Uncured = []string{"74"} }), start, Decision{Withhold, NotCured, 0}},
		{"uncured, old lines unread", with(func(v *View) { v.Uncured, v.CaughtUp = []string{"74"}, false }), start, Decision{Settle, ReadingLog, 2 * time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Decide(c.view, policy, c.now)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemory(t *testing.T) {
	cured := Report{Code: "79", Strategy: record.Process, Fatal: true, RebootCures: true}
	uncured := Report{Code: "74", Strategy: record.Process, Fatal: true}
	harmless := Report{Code: "13", Strategy: record.Process, RebootCures: true}
	watched := func(r Report) Report { r.Strategy = record.PersistOnly; return r }
	for _, c := range []struct {
		name       string
		reports    []Report
		strategy   record.Strategy
		withholds  []string
		configured record.Strategy
	}{
		{"nothing", nil, record.PersistOnly, nil, record.PersistOnly},
		{"cured", []Report{cured}, record.Process, nil, record.PersistOnly},
		{"harmless counts for the strategy", []Report{harmless}, record.Process, nil, record.PersistOnly},
		{"only observed", []Report{watched(cured)}, record.PersistOnly, nil, record.Process},
		{"PROCESS if any was", []Report{watched(cured), cured, watched(cured)}, record.Process, nil, record.PersistOnly},
		{"uncured", []Report{cured, uncured}, record.Process, []string{"74"}, record.Process},
		{"uncured, only observed, beside a PROCESS fault", []Report{watched(uncured), cured}, record.Process, nil, record.Process},
		{"uncured, all only observed", []Report{watched(uncured), watched(cured)}, record.PersistOnly, []string{"74"}, record.Process},
		{"uncured under both", []Report{uncured, watched(uncured)}, record.Process, []string{"74"}, record.Process},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Memory
			for _, r := range c.reports {
				m.Add(r)
			}
			if got := m.Strategy(c.configured); got != c.strategy {
				t.Errorf("strategy %s, want %s", got, c.strategy)
			}
			if diff := cmp.Diff(c.withholds, m.Withholding()); diff != "" {
				t.Errorf("withholding (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCloneSharesNothing(t *testing.T) {
	var m Memory
	m.Add(Report{Code: "74", Strategy: record.Process, Fatal: true})
	c := m.Clone()
	c.Add(Report{Code: "54", Strategy: record.Process, Fatal: true})
	if diff := cmp.Diff([]string{"74"}, m.Withholding()); diff != "" {
		t.Errorf("the original changed (-want +got):\n%s", diff)
	}
}
