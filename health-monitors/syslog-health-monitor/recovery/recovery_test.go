package recovery

import (
	"fmt"
	"slices"
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
	quiet := View{Pending: true, CaughtUp: true, IdleSince: start}
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
		{"fault that no reboot cures", with(func(v *View) { v.Uncured = []string{"74"} }), start.Add(2 * time.Minute), Decision{ReportCured, NotCured, 0}},
		{"uncured, settling", with(func(v *View) { v.Uncured = []string{"74"} }), start, Decision{Settle, Settling, 2 * time.Minute}},
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

func TestMemoryListsFaultsClearedByReset(t *testing.T) {
	var m Memory
	add := func(device, code string, fatal, reboot, reset bool) {
		m.Add(Report{Device: device, Code: code, Strategy: record.Process, Fatal: fatal, RebootCures: reboot, ResetCures: reset})
	}
	add("a", "13", false, true, true)
	add("a", "48", true, true, true)
	add("a", "79", true, true, false)
	add("a", "154", true, true, true)
	add("a", "154", true, true, false) // later it asked for a reboot
	add("a", "170", false, true, false)
	add("b", "31", false, true, true)
	always := []string{"48", "95"}
	if diff := cmp.Diff([]string{"13", "48", "95"}, m.AfterReset("a", always)); diff != "" {
		t.Errorf("codes of a (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(always, m.AfterReset("c", always)); diff != "" {
		t.Errorf("codes of a device without reports (-want +got):\n%s", diff)
	}
	m.Forget("a", []string{"13", "48", "95"})
	m.Forget("b", []string{"31"})
	want := map[string]map[string]Fault{"a": {"79": {Process: true, Unreset: true}, "154": {Process: true, Unreset: true}, "170": {Process: true, Unreset: true}}}
	if diff := cmp.Diff(want, m.Faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestForgettingOneDeviceKeepsTheOthersFaultUncured(t *testing.T) {
	var m Memory
	for _, device := range []string{"a", "b"} {
		m.Add(Report{Device: device, Code: "74", Strategy: record.Process, Fatal: true})
	}
	before := m.Clone()
	m.Forget("a", []string{"74"})
	if got := m.Withholding(); len(got) != 1 || got[0] != "74" {
		t.Errorf("withheld for %v", got)
	}
	m.Forget("b", []string{"74"})
	if got := m.Withholding(); len(got) != 0 {
		t.Errorf("withheld for %v", got)
	}
	if got := before.Withholding(); len(got) != 1 || len(before.Faults) != 2 {
		t.Errorf("the copy changed: %+v", before)
	}
}

func TestCuredFaultsAreListedByDevice(t *testing.T) {
	var m Memory
	add := func(device, code string, fatal, cures bool, names ...[2]string) {
		m.Add(Report{Device: device, Named: Device{Names: names}, Code: code, Strategy: record.Process, Fatal: fatal, RebootCures: cures})
	}
	gpu := [2]string{"PCI", "a"}
	add("a", "79", true, true, gpu)
	add("a", "13", false, true, gpu)
	add("a", "74", true, false, gpu)
	add("b", "54", true, false, [2]string{"PCI", "b"})
	add("c", "79", true, true) // nothing to name it by: an event without names would clear all
	if diff := cmp.Diff(map[string][]string{"a": {"13", "79"}}, m.Cured()); diff != "" {
		t.Errorf("cured (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"13", "74", "79"}, m.Codes("a")); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

func TestAPersonClearsAFaultByAnyOfItsEvents(t *testing.T) {
	for _, cleared := range []string{"id0", "id25", "id39"} {
		var m Memory
		for i := range 40 {
			m.Add(Report{Device: "a", ID: fmt.Sprint("id", i), Code: "74", Strategy: record.Process, Fatal: true})
		}
		m.Add(Report{Device: "b", ID: "other", Code: "74", Strategy: record.Process, Fatal: true})
		before := m.Clone()
		if got := m.Clear(func(ids []string) bool { return slices.Contains(ids, cleared) }); len(got) != 1 || got[0] != "74" || len(m.Faults) != 1 || len(m.Faults["b"]) != 1 {
			t.Errorf("%s cleared %v, left %+v", cleared, got, m.Faults)
		}
		if n := len(before.Faults["a"]["74"].IDs); n != maxIDs {
			t.Errorf("%d events are remembered", n)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var m Memory
	for i := range 1000 {
		m.Add(Report{Device: fmt.Sprint(i), Code: "74", Strategy: record.Process, Fatal: true})
		m.Add(Report{Device: "0", Code: fmt.Sprint(i), Strategy: record.Process, ResetCures: true})
	}
	if len(m.Faults) != maxDevices+1 || len(m.Faults["0"]) != maxCodes {
		t.Errorf("%d devices, %d codes", len(m.Faults), len(m.Faults["0"]))
	}
	m.Add(Report{Device: "0", Code: "uncured", Strategy: record.Process, Fatal: true})
	if got := m.Withholding(); len(got) != 2 {
		t.Errorf("withheld for %v; a fault that no reboot cures is never dropped", got)
	}
}

// TestMemoryNamesDevices: a device keeps the UUID that was known of it, and events have
// ids where they have any.
func TestMemoryNamesDevices(t *testing.T) {
	uncured := Report{Device: "a", Code: "74", Strategy: record.Process, Fatal: true}
	for name, c := range map[string]struct {
		device string
		named  []string // UUIDs, one report after the other
		want   map[string]Device
	}{
		"no device":       {"", []string{"u"}, nil},
		"one":             {"a", []string{"u"}, map[string]Device{"a": {UUID: "u"}}},
		"without a UUID":  {"a", []string{""}, map[string]Device{"a": {}}},
		"no longer known": {"a", []string{"u", ""}, map[string]Device{"a": {UUID: "u"}}},
		"another one now": {"a", []string{"u", "v"}, map[string]Device{"a": {UUID: "v"}}},
	} {
		var m Memory
		for _, u := range c.named {
			r := uncured
			r.Device, r.Named = c.device, Device{UUID: u}
			m.Add(r)
		}
		if diff := cmp.Diff(c.want, m.Devices); diff != "" {
			t.Errorf("%s: devices (-want +got):\n%s", name, diff)
		}
	}
	var m Memory
	m.Add(uncured)
	uncured.ID = "e1"
	m.Add(uncured)
	m.Add(Report{Device: "a", Code: "13", ID: "e2", Strategy: record.Process, RebootCures: true})
	if ids, none := m.Faults["a"]["74"].IDs, m.Faults["a"]["13"].IDs; !slices.Equal(ids, []string{"e1"}) || none != nil {
		t.Errorf("ids %v of what no reboot cures, %v of the other", ids, none)
	}
}
