package watch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// scripted is a DCGM that returns what a test sets, and records what it was asked.
type scripted struct {
	reading reading.Reading
	err     error
	since   []time.Time
}

func (s *scripted) Poll(_ context.Context, since time.Time) (reading.Reading, time.Time, error) {
	s.since = append(s.since, since)
	for i := range s.reading.Devices { // every value has a sample of now
		d := &s.reading.Devices[i]
		d.Samples = map[reading.Field]int64{reading.FieldUUID: s.reading.Next}
		for _, field := range reading.DecidingFields() {
			d.Samples[field] = s.reading.Next
		}
	}
	return s.reading, time.Time{}, s.err
}

func (*scripted) Close() {}

func broken(code uint) reading.Incident {
	return reading.Incident{System: 0x10, Health: reading.Fail, Code: code, Entity: reading.Entity{Kind: reading.GPU}}
}

func newMonitor(t *testing.T, path string, entries int) (*Monitor, *scripted) {
	t.Helper()
	clk := testkit.NewClock()
	outbox, err := report.Open(path, report.Options{MaxEntries: entries, Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outbox.Close() })
	table, err := check.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	policy := check.Policy{Node: "n1", Table: table, Catalogue: xid.Builtin, Remember: Remember}
	policy.Rules, policy.Otherwise = check.DefaultRules(record.Process)
	dcgm := &scripted{reading: reading.Reading{Devices: []reading.Device{{Status: reading.OK, UUID: "GPU-0", PCI: "0000:10:00.0"}}}}
	m := &Monitor{
		Policy: policy, Interval: time.Second, DCGM: dcgm, Outbox: outbox, BootID: func() (string, error) { return "b1", nil },
		Cleared: connector.FollowClearances(path + ".cleared"), Devices: nodefile.FollowGPUs(filepath.Join(t.TempDir(), "none"), strings.ToLower), Clock: clk, Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	if err := m.remember(); err != nil {
		t.Fatal(err)
	}
	return m, dcgm
}

// TestFullOutboxSkipsPoll: what could not be written is reported once there is space, and
// the search for XIDs starts at the same time again.
func TestFullOutboxSkipsPoll(t *testing.T) {
	m, dcgm := newMonitor(t, filepath.Join(t.TempDir(), "outbox.db"), 1)
	dcgm.reading.Incidents = []reading.Incident{broken(4)}
	dcgm.reading.Next = m.Clock.Now().UnixMicro()
	if err := m.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	dcgm.reading.Incidents = append(dcgm.reading.Incidents, broken(80))
	dcgm.reading.Next += 1e6
	for range 2 {
		if err := m.poll(t.Context()); !errors.Is(err, report.ErrFull) {
			t.Fatalf("a full outbox: %v", err)
		}
	}
	if !dcgm.since[1].Equal(dcgm.since[2]) || !dcgm.since[1].Equal(m.Clock.Now().Add(-LookBack)) {
		t.Errorf("looked for XIDs since %v", dcgm.since)
	}
	if err := m.Outbox.Remove(1); err != nil {
		t.Fatal(err)
	}
	if err := m.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := m.Outbox.Peek(0, 10, 1<<20)
	if err != nil || len(entries) != 1 || entries[0].Event.ErrorCode[0] != "DCGM_FR_ROW_REMAP_FAILURE" {
		t.Fatalf("%v, %v", entries, err)
	}
}

// TestXIDLookback: an hour, after a look with too many XIDs to a little before
// it, and again to an hour as time passes.
func TestXIDLookback(t *testing.T) {
	m, dcgm := newMonitor(t, filepath.Join(t.TempDir(), "outbox.db"), 100)
	start := m.Clock.Now()
	xids := func(n int) (out []reading.XID) {
		for i := range n {
			out = append(out, reading.XID{Entity: reading.Entity{Kind: reading.GPU}, Number: 31, At: start.UnixMicro() - int64(i)*2e6})
		}
		return out
	}
	for i, c := range []struct {
		at   time.Duration // of the look
		xids int           // that it answers
		want time.Duration // how far it goes back
	}{
		{0, most, LookBack},
		{time.Minute, most + 1, LookBack - time.Minute + time.Minute},
		{2 * time.Minute, 3, time.Minute + overlap - time.Minute},
		{10 * time.Minute, 3, time.Minute + overlap},
		{3 * time.Hour, 0, 9*time.Minute + overlap},
		{3*time.Hour + time.Second, 0, LookBack},
	} {
		dcgm.reading.XIDs, dcgm.reading.Next = xids(c.xids), start.Add(c.at).UnixMicro()
		before := m.next
		if err := m.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := before.Sub(dcgm.since[i]); got != c.want {
			t.Errorf("look %d goes back %s, want %s", i, got, c.want)
		}
	}
}

// TestOpenFaultsSurviveRestart: a restarted monitor reports the end of the faults that the
// previous one reported.
func TestOpenFaultsSurviveRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	m, dcgm := newMonitor(t, path, 100)
	dcgm.reading.Incidents = []reading.Incident{broken(4)}
	if err := m.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Outbox.Close(); err != nil {
		t.Fatal(err)
	}
	m, _ = newMonitor(t, path, 100)
	for range 3 {
		if err := m.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := m.Outbox.Peek(0, 10, 1<<20)
	if err != nil || len(entries) != 2 || !entries[1].Event.IsHealthy {
		t.Fatalf("%v, %v", entries, err)
	}
}

// TestClearedFaultIsReportedOnRecurrence: an XID at its next; what DCGM shows in
// each look stays, also over a crash between the forgetting and its note.
func TestClearedFaultIsReportedOnRecurrence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	m, dcgm := newMonitor(t, path, 100)
	reported := func(want int) (ids []string) {
		t.Helper()
		entries, err := m.Outbox.Peek(0, 10, 1<<20)
		if err != nil || len(entries) != want {
			t.Fatalf("%d told, want %d: %v, %v", len(entries), want, entries, err)
		}
		for _, e := range entries {
			ids = append(ids, e.Event.GetId())
		}
		return ids
	}
	look := func(at int64) {
		t.Helper()
		dcgm.reading.XIDs = append(dcgm.reading.XIDs, reading.XID{Entity: reading.Entity{Kind: reading.GPU}, Number: 79, At: m.Clock.Now().UnixMicro() + at*1e6})
		if err := m.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dcgm.reading.Incidents = []reading.Incident{broken(4)}
	look(1)
	look(2)
	ids := reported(2)
	content, err := json.Marshal(record.ClearedList{Records: ids})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".cleared", content, 0o600); err != nil {
		t.Fatal(err)
	}
	look(3)
	reported(3)
	for range 2 { // what is dealt with is not forgotten again
		if err := m.Outbox.Close(); err != nil {
			t.Fatal(err)
		}
		m, _ = newMonitor(t, path, 100)
		m.DCGM = dcgm
		look(4)
		reported(3)
	}
}

// TestReadinessNamesFailure: readiness names the failed part and the reason.
func TestReadinessNamesFailure(t *testing.T) {
	m, dcgm := newMonitor(t, filepath.Join(t.TempDir(), "outbox.db"), 100)
	looks := m.Rounds()
	if ok, _ := looks.Ready(); ok {
		t.Error("ready before the first look")
	}
	dcgm.err = &reading.Failure{Trouble: reading.Unreachable, Operation: "Init", Text: "nobody"}
	looks.Once(t.Context())
	if ok, why := looks.Ready(); ok || !strings.Contains(why, "Init failed: nobody") {
		t.Errorf("%t %q", ok, why)
	}
	dcgm.err = nil
	looks.Once(t.Context())
	if ok, why := looks.Ready(); !ok {
		t.Errorf("not ready: %s", why)
	}
}
