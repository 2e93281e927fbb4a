package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/option"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func connect(t testing.TB, s *server, change func(*CloudConfig)) *Source {
	t.Helper()
	c := CloudConfig{Project: "p", ComputeEndpoint: s.url, LoggingEndpoint: s.url}
	change(&c)
	source, err := New(t.Context(), c, option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func fullAccess(*CloudConfig) {}

func in(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }

func at(hours float64) string { return in(hours).Format(time.RFC3339) }

func read(t *testing.T, s *Source, q announcement.Question) announcement.Reading {
	t.Helper()
	if q.Now.IsZero() {
		q.Now = now
	}
	r, err := s.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// only is the one announcement of a reading.
func only(t *testing.T, r announcement.Reading) announcement.Announcement {
	t.Helper()
	if len(r.Announcements) != 1 {
		t.Fatalf("%d announcements, want 1: %+v", len(r.Announcements), r.Announcements)
	}
	return r.Announcements[0]
}

// upcomingNotice is an upcoming maintenance from begin to begin+2 that may begin until latest.
func upcomingNotice(status string, begin, latest float64, reasons ...string) map[string]any {
	return map[string]any{
		"maintenanceStatus": status, "type": "SCHEDULED", "windowStartTime": at(begin), "windowEndTime": at(begin + 2),
		"latestWindowStartTime": at(latest), "maintenanceReasons": reasons, "canReschedule": true,
	}
}

const methodUpcoming, methodTerminate, methodMigrate = "compute.instances.upcomingMaintenance", "compute.instances.terminateOnHostMaintenance", "compute.instances.migrateOnHostMaintenance"

// Each code of the tables becomes its action, wherever it is reported.
func TestCodes(t *testing.T) {
	for _, c := range append(Codes(), announcement.Unknown("FAILURE_OF_IMAGINATION")) {
		t.Run(c.Name, func(t *testing.T) {
			s := serve(t)
			s.instances = []instance{{id: 7, name: "n"}}
			switch {
			case strings.HasPrefix(c.Name, "compute."):
				s.lines = []logLine{{at: at(-0.5), insertID: "a", method: c.Name, instance: 7, name: "n", metadata: upcomingNotice("PENDING", 2, 9)}}
			default:
				s.instances[0].maintenance = upcomingNotice("PENDING", 2, 9, c.Name)
			}
			a := only(t, read(t, connect(t, s, fullAccess), announcement.Question{}))
			if a.Code != c.Name || a.Action != c.Action || a.Emergency != c.Emergency || a.Unplanned != c.Unplanned || a.Machine != "p/zone-a/n" {
				t.Errorf("%+v, want %+v", a, c)
			}
		})
	}
	s := serve(t)
	s.instances = []instance{{id: 7, name: "n", maintenance: upcomingNotice("PENDING", 2, 9, "PLANNED_UPDATE", "FAILURE_GPU", "FAILURE_OF_IMAGINATION")}}
	if a := only(t, read(t, connect(t, s, fullAccess), announcement.Question{})); a.Action != protos.RecommendedAction_CONTACT_SUPPORT {
		t.Errorf("of several reasons %s, %s", a.Code, a.Action)
	}
}

// The words of maintenanceStatus and type (source: UpcomingMaintenance in
// https://cloud.google.com/compute/docs/reference/rest/v1/instances).
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		status, kind string
		want         announcement.State
		unplanned    bool
	}{
		{"PENDING", "SCHEDULED", announcement.Scheduled, false},
		{"ONGOING", "SCHEDULED", announcement.Ongoing, false},
		{"UNKNOWN", "UNKNOWN_TYPE", announcement.Scheduled, false},
		{"PENDING", "UNSCHEDULED", announcement.Scheduled, true},
		{"ONGOING", "MULTIPLE", announcement.Ongoing, true},
		{"", "", announcement.Scheduled, false},
		{"PAUSED", "ODD", announcement.Scheduled, false},
	} {
		s := serve(t)
		n := upcomingNotice(tt.status, 2, 9)
		n["type"] = tt.kind
		s.instances = []instance{{id: 7, name: "n", maintenance: n}}
		a := only(t, read(t, connect(t, s, fullAccess), announcement.Question{}))
		if a.State != tt.want || a.Unplanned != tt.unplanned || !a.Begin.Equal(in(2)) || !a.End.Equal(in(4)) || a.Metadata["maintenanceStatus"] != tt.status {
			t.Errorf("%s %s: %+v", tt.status, tt.kind, a)
		}
	}
}

// A maintenance has one id over its life, regardless of who reports it.
func TestMaintenanceLifecycles(t *testing.T) {
	shown := func(n map[string]any) []instance { return []instance{{id: 7, name: "n", maintenance: n}} }
	reported := func(hour float64, text string, n map[string]any) logLine {
		return logLine{at: at(hour), insertID: at(hour), method: methodUpcoming, instance: 7, name: "n", text: text, metadata: n}
	}
	over := "Maintenance window has completed for this instance."
	type step struct {
		hour      float64
		instances []instance
		line      *logLine
		want      string // state and id of what is announced; "gone" if an open one is missing from a whole list
	}
	l := func(l logLine) *logLine { return &l }
	for name, steps := range map[string][]step{
		"the instance shows it": {
			{0, shown(upcomingNotice("PENDING", 24, 72)), nil, "Scheduled 72"}, {30, shown(upcomingNotice("ONGOING", 24, 72)), nil, "Ongoing 72"}, {31, shown(nil), nil, "gone"},
		},
		"rescheduled": {
			{0, shown(upcomingNotice("PENDING", 24, 72)), nil, "Scheduled 72"}, {20, shown(upcomingNotice("PENDING", 70, 72)), nil, "Scheduled 72"}, {30, shown(upcomingNotice("PENDING", 70, 72)), nil, "Scheduled 72"},
		},
		"its latest begin moves before it has come": {
			{0, shown(upcomingNotice("PENDING", 24, 72)), nil, "Scheduled 72"}, {20, shown(upcomingNotice("PENDING", 70, 90)), nil, "Scheduled 72"}, {75, shown(upcomingNotice("ONGOING", 70, 90)), nil, "Ongoing 72"},
		},
		"another one after the monitor was down": {
			{0, shown(upcomingNotice("PENDING", 24, 24)), nil, "Scheduled 24"}, {300, shown(upcomingNotice("PENDING", 500, 500)), nil, "Scheduled 500"},
		},
		"the log alone, to its end": {
			{0, shown(nil), l(reported(-0.1, "soon", upcomingNotice("PENDING", 24, 72))), "Scheduled 72"}, {10, shown(nil), nil, "Scheduled 72"},
			{25, shown(nil), l(reported(24, "now", upcomingNotice("ONGOING", 24, 72))), "Ongoing 72"}, {25.5, shown(nil), l(reported(25.2, over, nil)), "Completed 72"}, {26, shown(nil), nil, ""},
		},
		"the log alone, which forgets the end": {
			{0, shown(nil), l(reported(-0.1, "soon", upcomingNotice("PENDING", 24, 72))), "Scheduled 72"}, {26.5, shown(nil), nil, "Scheduled 72"}, {28, shown(nil), nil, "Completed 72"},
		},
		"the log alone, the instance is deleted": {
			{0, shown(nil), l(reported(-0.1, "soon", upcomingNotice("PENDING", 24, 72))), "Scheduled 72"}, {10, []instance{{id: 8, name: "m"}}, nil, "gone"}, {11, nil, nil, ""},
		},
		"both, and the monitor is down at the end": {
			{0, shown(upcomingNotice("PENDING", 24, 72)), l(reported(-0.1, "soon", upcomingNotice("PENDING", 24, 72))), "Scheduled 72"},
			{90, shown(nil), l(reported(26, over, nil)), "Completed 72"},
		},
		"first seen when it is under way": {{0, shown(upcomingNotice("ONGOING", -1, 0)), nil, "Ongoing 0"}},
		"over before it was read":         {{0, shown(nil), l(reported(-5, over, nil)), ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			source := connect(t, s, fullAccess)
			q := announcement.Question{}
			for i, step := range steps {
				if s.instances = step.instances; step.line != nil {
					s.lines = append(s.lines, *step.line)
				}
				q.Now = in(step.hour)
				r := read(t, source, q)
				got := ""
				if len(r.Announcements) == 0 && len(q.Open) > 0 && r.Complete {
					got = "gone"
				}
				q.Checkpoint, q.Open = r.Checkpoint, nil
				if len(r.Announcements) > 0 {
					a := only(t, r)
					_, key, _ := strings.Cut(a.ID, "/")
					key0, err := time.Parse(time.RFC3339, key)
					if err != nil {
						t.Fatal(a.ID)
					}
					got = fmt.Sprint(a.State, " ", key0.Sub(now).Hours())
					if a.State == announcement.Scheduled || a.State == announcement.Ongoing {
						q.Open = []string{a.ID}
					}
					if a.Machine != "p/zone-a/n" {
						t.Errorf("step %d: machine %q", i, a.Machine)
					}
				}
				if got != step.want {
					t.Errorf("step %d: %q, want %q", i, got, step.want)
				}
			}
		})
	}
}

// What the log reports is added to what the instance shows.
func TestLogAddsDetails(t *testing.T) {
	s := serve(t)
	s.instances = []instance{{id: 7, name: "n", maintenance: upcomingNotice("ONGOING", -1, 9)}}
	s.lines = []logLine{
		{at: at(-3), insertID: "a", method: methodUpcoming, instance: 7, name: "n", text: "soon", metadata: upcomingNotice("PENDING", -1, 9)},
		{at: at(-0.9), insertID: "b", method: methodUpcoming, instance: 7, name: "n", text: "now", metadata: upcomingNotice("ONGOING", -1, 9)},
	}
	a := only(t, read(t, connect(t, s, fullAccess), announcement.Question{}))
	if a.Text != "now" || !a.Began.Equal(in(-0.9)) || !a.Updated.Equal(in(-0.9)) || a.Metadata["onHostMaintenance"] != "TERMINATE" {
		t.Errorf("%+v", a)
	}
}

// An instance that was stopped is under maintenance until it runs again; one that moved
// has had it. The lines of one operation are one announcement.
func TestUnannounced(t *testing.T) {
	s := serve(t)
	source := connect(t, s, fullAccess)
	s.instances = []instance{{id: 7, name: "n", status: "TERMINATED", started: at(-99)}}
	s.lines = []logLine{
		{at: at(-0.2), insertID: "a", operation: "o", method: methodTerminate, instance: 7, name: "n"},
		{at: at(-0.1), insertID: "b", operation: "o", method: methodTerminate, instance: 7, name: "n"},
		{at: at(-0.1), insertID: "b", operation: "o", method: methodTerminate, instance: 7, name: "n"},
	}
	r := read(t, source, announcement.Question{})
	first := only(t, r)
	if first.State != announcement.Ongoing || !first.Unplanned || !first.Emergency || !first.Began.Equal(in(-0.2)) {
		t.Fatalf("%+v", first)
	}
	q := announcement.Question{Now: in(5), Checkpoint: r.Checkpoint, Open: []string{first.ID}}
	r = read(t, source, q)
	if again := only(t, r); again.ID != first.ID || again.State != announcement.Ongoing {
		t.Errorf("%+v", again)
	}
	s.instances[0].status, s.instances[0].started = "RUNNING", at(5.5)
	q.Now, q.Checkpoint = in(6), r.Checkpoint
	if last := only(t, read(t, source, q)); last.ID != first.ID || last.State != announcement.Completed || !last.Ended.Equal(in(5.5)) {
		t.Errorf("%+v", last)
	}
	s.instances, s.lines = nil, []logLine{{at: at(5), insertID: "a", method: methodTerminate, instance: 7, name: "n"}}
	if r := read(t, source, announcement.Question{Now: in(6), Checkpoint: at(5), Open: []string{first.ID}}); len(r.Announcements) != 0 || !r.Complete || r.Checkpoint != at(6) {
		t.Errorf("its instance is gone: %+v", r)
	}
	s.lines = []logLine{{at: at(-0.2), insertID: "a", method: methodMigrate, instance: 7, name: "n"}}
	if moved := only(t, read(t, source, announcement.Question{})); moved.State != announcement.Completed {
		t.Errorf("%+v", moved)
	}
}

// A line that can't be read still shows that the instance has maintenance.
func TestOddLines(t *testing.T) {
	s := serve(t)
	s.instances = []instance{{id: 7, name: "n"}}
	s.lines = []logLine{{at: at(-0.2), insertID: "a", method: methodUpcoming, instance: 7, payload: map[string]any{"methodName": methodUpcoming, "metadata": "none"}}}
	a := only(t, read(t, connect(t, s, fullAccess), announcement.Question{}))
	if a.Machine != "p/zone-a/n" || a.State != announcement.Scheduled || a.ID != "7/" {
		t.Errorf("%+v", a)
	}
}

// Whatever goes wrong on page 3 of 5, and stays so, leaves no reading; what the retries
// get over leaves the whole one.
func TestFaults(t *testing.T) {
	for _, operation := range []string{"instances", "entries"} {
		for _, f := range []fault{429, 500, 502, 503, 504, 401, 403, 400, 0} {
			for _, times := range []int{1, 9} {
				t.Run(fmt.Sprint(operation, " ", f, " ", times), func(t *testing.T) {
					t.Parallel()
					s := serve(t)
					s.page = 10
					for i := range uint64(50) {
						s.instances = append(s.instances, instance{id: i + 1, name: fmt.Sprint("n", i), maintenance: upcomingNotice("PENDING", 2, 9)})
						s.lines = append(s.lines, logLine{at: at(-0.5), insertID: fmt.Sprint(i), method: methodMigrate, instance: i + 1, name: "n"})
					}
					s.faults[operation+" 3"] = slices.Repeat([]fault{f}, times)
					r, err := connect(t, s, fullAccess).Read(t.Context(), announcement.Question{Now: now, Checkpoint: at(-5)})
					passes := times == 1 && (f == 429 || f >= 500)
					switch {
					case passes && (err != nil || len(r.Announcements) != 100 || r.Calls != 10):
						t.Errorf("%d announcements, %d calls, %v; want 100 by 10", len(r.Announcements), r.Calls, err)
					case f == 0 && times == 1: // whole or none, as the transport has it
						if (err == nil) != (len(r.Announcements) == 100) {
							t.Errorf("a reading %d, %v", len(r.Announcements), err)
						}
					case !passes && (err == nil || r.Checkpoint != "" || r.Announcements != nil):
						t.Errorf("a reading %d, %q, %v; want none", len(r.Announcements), r.Checkpoint, err)
					case times > 1 && (f == 429 || f >= 500) && len(s.faults[operation+" 3"]) != 6:
						t.Errorf("%d attempts, want 3", 9-len(s.faults[operation+" 3"]))
					}
				})
			}
		}
	}
}

// A zone out of reach leaves it open what is missing.
func TestZoneOutOfReach(t *testing.T) {
	s := serve(t)
	s.instances, s.warning = []instance{{id: 7, name: "n", maintenance: upcomingNotice("PENDING", 2, 9)}}, "UNREACHABLE"
	if r := read(t, connect(t, s, fullAccess), announcement.Question{Open: []string{"8/x"}}); r.Complete || len(r.Announcements) != 1 {
		t.Errorf("%+v", r)
	}
	s.warning = ""
	if r := read(t, connect(t, s, fullAccess), announcement.Question{}); !r.Complete {
		t.Errorf("%+v", r)
	}
}

func TestWindow(t *testing.T) {
	s := serve(t)
	source := connect(t, s, fullAccess)
	r := read(t, source, announcement.Question{})
	if r.Checkpoint != at(0) || !strings.Contains(s.filters[0], fmt.Sprintf(`timestamp>=%q AND timestamp<=%q`, at(-30*24), at(0))) {
		t.Errorf("checkpoint %q after %s", r.Checkpoint, s.filters[0])
	}
	read(t, source, announcement.Question{Now: in(48), Checkpoint: r.Checkpoint})
	if !strings.Contains(s.filters[1], fmt.Sprintf(`timestamp>=%q AND timestamp<=%q`, at(-1), at(48))) {
		t.Errorf("then %s", s.filters[1])
	}
	for _, bad := range []string{"yesterday", at(0) + " then"} {
		if _, err := source.Read(t.Context(), announcement.Question{Now: now, Checkpoint: bad}); err == nil {
			t.Errorf("the checkpoint %q was read", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.Read(ctx, announcement.Question{Now: now}); err == nil {
		t.Error("a reading after the end")
	}
}

func TestCheck(t *testing.T) {
	s := serve(t)
	source := connect(t, s, fullAccess)
	if err := source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"instances", "entries"} {
		s.faults[operation+" 1"] = []fault{403}
		if err := source.Check(t.Context()); err == nil || !strings.Contains(err.Error(), ".list") {
			t.Errorf("%s: %v", operation, err)
		}
	}
	alone := connect(t, s, func(c *CloudConfig) { c.WithoutLogs = true })
	s.faults["entries 1"], s.requests = []fault{403}, nil
	if err := alone.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if r := read(t, alone, announcement.Question{}); r.Calls != 1 || slices.ContainsFunc(s.requests, func(b string) bool { return strings.HasPrefix(b, "entries") }) {
		t.Errorf("%+v by %v", r, s.requests)
	}
	if _, err := New(t.Context(), CloudConfig{}, option.WithoutAuthentication()); err == nil {
		t.Error("a source without a project")
	}
}

func TestMachine(t *testing.T) {
	for providerID, want := range map[string]string{
		"gce://my-project/us-central1-a/gke-pool-1":       "my-project/us-central1-a/gke-pool-1",
		"gce://example.com:my-project/us-central1-a/node": "example.com:my-project/us-central1-a/node",
		"":                             "",
		"gce://":                       "",
		"gce://p/z":                    "",
		"gce://p/z/n/x":                "",
		"gce://p//n":                   "",
		"gce:///p/z/n":                 "",
		"gce://p/z/N":                  "",
		"aws:///us-west-2a/i-01234567": "",
		"gce://p/z/n\n":                "",
	} {
		got, ok := (&Source{}).Machine(providerID)
		if got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v; want %q", providerID, got, ok, want)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add("gce://my-project/us-central1-a/gke-pool-1")
	f.Add("gce://a/b/")
	f.Fuzz(func(t *testing.T, providerID string) {
		got, ok := (&Source{}).Machine(providerID)
		if ok != (got != "") || ok && (providerID != "gce://"+got || strings.Count(got, "/") != 2) {
			t.Errorf("%q is %q, %v", providerID, got, ok)
		}
	})
}

// fleet is 10,000 instances of which 2,000 show a maintenance that the log reported too.
func fleet(s *server) {
	for i := range uint64(10_000) {
		one := instance{id: i + 1, name: fmt.Sprint("n", i)}
		if i%5 == 0 {
			one.maintenance = upcomingNotice("PENDING", 5, 9)
			s.lines = append(s.lines, logLine{at: at(-2), insertID: fmt.Sprint(i), method: methodUpcoming, instance: one.id, name: one.name, metadata: one.maintenance})
		}
		s.instances = append(s.instances, one)
	}
}

func TestCallsOfALargeFleet(t *testing.T) {
	testkit.Long(t, "the faults on a page in the middle, and the lives, read page by page")
	s := serve(t)
	fleet(s)
	source := connect(t, s, fullAccess)
	r := read(t, source, announcement.Question{})
	// 20 pages of instances, 2 of the log.
	if len(r.Announcements) != 2000 || r.Calls != 22 || len(s.requests) != 22 || r.Checkpoint != at(0) {
		t.Errorf("%d announcements by %d calls, %d requests, %q", len(r.Announcements), r.Calls, len(s.requests), r.Checkpoint)
	}
	q := announcement.Question{Now: in(2), Checkpoint: at(1.9)}
	for _, a := range r.Announcements {
		q.Open = append(q.Open, a.ID)
	}
	if again := read(t, source, q); len(again.Announcements) != 2000 || again.Calls != 21 {
		t.Errorf("later %d announcements by %d calls, want 2000 by 21", len(again.Announcements), again.Calls)
	}
}

func BenchmarkRead(b *testing.B) {
	s := serve(b)
	fleet(s)
	source := connect(b, s, fullAccess)
	b.ReportAllocs()
	for b.Loop() {
		r, err := source.Read(b.Context(), announcement.Question{Now: now})
		if err != nil || len(r.Announcements) != 2000 {
			b.Fatal(len(r.Announcements), err)
		}
		s.requests, s.filters = nil, nil
	}
}

// The page's table is the code's.
func TestTheTableOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../maintenance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), announcement.Markdown(Codes())) {
		t.Errorf("maintenance.md lacks this table:\n%s", announcement.Markdown(Codes()))
	}
	names := map[string]bool{}
	for _, c := range Codes() {
		names[c.Name] = true
	}
	if len(names) != len(Codes()) {
		t.Errorf("a code stands twice: %v", slices.Sorted(maps.Keys(names)))
	}
}
