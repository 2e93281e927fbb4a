package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// key signs the requests of all tests.
var key = sync.OnceValue(func() string {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
})

func connect(t testing.TB, s *server, compartments ...string) *Source {
	t.Helper()
	creds := common.NewRawConfigurationProvider("ocid1.tenancy.oc1..t", "ocid1.user.oc1..u", "us-phoenix-1", "aa:bb", key(), nil)
	source, err := As(CloudConfig{Compartments: append([]string{"c"}, compartments...), Endpoint: s.url}, creds)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func in(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }

func at(hours float64) string { return in(hours).Format(time.RFC3339) }

const instance = "ocid1.instance.oc1.phx.abyhqljt"

// one is an event that begins in two hours, changed by pairs of names and values.
func one(id string, change ...any) event {
	e := event{
		"id": id, "instanceId": instance, "compartmentId": "c", "maintenanceCategory": "MANDATORY", "maintenanceReason": "HARDWARE_REPLACEMENT",
		"instanceAction": "REBOOT_MIGRATION", "alternativeResolutionActions": []string{"REBOOT_MIGRATION"}, "timeWindowStart": at(2),
		"startWindowDuration": "PT1H", "estimatedDuration": "PT30M", "canReschedule": true, "timeCreated": at(-24), "lifecycleState": "SCHEDULED",
		"createdBy": "SYSTEM", "description": "for people", "timeHardDueDate": at(99),
	}
	for i := 0; i < len(change); i += 2 {
		e[change[i].(string)] = change[i+1]
	}
	return e
}

func read(t *testing.T, s *Source, open ...string) announcement.Reading {
	t.Helper()
	r, err := s.Read(t.Context(), announcement.Question{Now: now, Open: open})
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

// Each instanceAction becomes its action; what is read beside it.
func TestCodes(t *testing.T) {
	for _, c := range append(Codes(), announcement.Unknown("LEVITATE")) {
		s := serve(t)
		s.events = []event{one("e", "instanceAction", c.Name)}
		a := only(t, read(t, connect(t, s)))
		if a.Code != c.Name || a.Action != c.Action || a.Emergency || a.Unplanned || a.Machine != instance || a.Text != "for people" ||
			!a.Begin.Equal(in(2)) || !a.End.Equal(in(3.5)) || a.Metadata["timeHardDueDate"] != at(99) || a.Metadata["maintenanceReason"] != "HARDWARE_REPLACEMENT" {
			t.Errorf("%+v, want %+v", a, c)
		}
	}
}

// The values of lifecycleState and maintenanceCategory (source: InstanceMaintenanceEvent
// in https://docs.oracle.com/en-us/iaas/api/#/en/iaas/20160918/InstanceMaintenanceEvent/).
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		state, category string
		want            announcement.State
		emergency       bool
	}{
		{"SCHEDULED", "MANDATORY", announcement.Scheduled, false},
		{"STARTED", "FLEXIBLE", announcement.Ongoing, false},
		{"PROCESSING", "OPTIONAL", announcement.Ongoing, false},
		{"SUCCEEDED", "NOTIFICATION", announcement.Completed, false},
		{"CANCELED", "MANDATORY", announcement.Cancelled, false},
		{"FAILED", "MANDATORY", announcement.Ongoing, false},
		{"SCHEDULED", "EMERGENCY", announcement.Scheduled, true},
		{"POSTPONED", "ODD", announcement.Scheduled, false},
	} {
		s := serve(t)
		s.events = []event{one("e", "lifecycleState", tt.state, "maintenanceCategory", tt.category, "timeStarted", at(2.5), "timeFinished", at(3))}
		a := only(t, read(t, connect(t, s), "e"))
		if a.State != tt.want || a.Emergency != tt.emergency || a.Unplanned != tt.emergency || a.Metadata["lifecycleState"] != tt.state ||
			!a.Began.Equal(in(2.5)) || !a.Ended.Equal(in(3)) || (a.Action == protos.RecommendedAction_CONTACT_SUPPORT) != (tt.state == "FAILED") {
			t.Errorf("%s %s: %+v", tt.state, tt.category, a)
		}
	}
}

// What ended or failed before it was read is history; what failed ends with the next.
func TestMaintenanceLifecycles(t *testing.T) {
	s := serve(t)
	source := connect(t, s)
	s.events = []event{one("old", "lifecycleState", "SUCCEEDED"), one("older", "lifecycleState", "CANCELED"), one("failed", "lifecycleState", "FAILED")}
	if r := read(t, source); len(r.Announcements) != 0 || !r.Complete || r.Checkpoint != "" {
		t.Errorf("%+v", r)
	}
	if a := only(t, read(t, source, "failed")); a.State != announcement.Ongoing {
		t.Errorf("%+v", a)
	}
	s.events = append(s.events, one("next", "timeCreated", at(0), "timeWindowStart", at(50)))
	r := read(t, source, "failed")
	if len(r.Announcements) != 2 || r.Announcements[0].ID != "failed" || r.Announcements[0].State != announcement.Completed || r.Announcements[1].State != announcement.Scheduled {
		t.Errorf("%+v", r.Announcements)
	}
	s.events = []event{one("next", "timeWindowStart", at(80))} // rescheduled
	if a := only(t, read(t, source, "next")); !a.Begin.Equal(in(80)) {
		t.Errorf("%+v", a)
	}
}

// An open event that the list forgot is got; it is gone only where others can be got.
func TestForgotten(t *testing.T) {
	s := serve(t)
	source := connect(t, s)
	s.events, s.unlisted["e"] = []event{one("e", "lifecycleState", "SUCCEEDED")}, true
	if r := read(t, source, "e"); only(t, r).State != announcement.Completed || !r.Complete || r.Calls != 2 {
		t.Errorf("got by its id: %+v", r)
	}
	if r := read(t, source, "gone"); r.Complete {
		t.Errorf("nothing else to get: %+v", r)
	}
	s.unlisted = map[string]bool{}
	if r := read(t, source, "gone"); !r.Complete || r.Calls != 3 {
		t.Errorf("another can be got: %+v", r)
	}
	s.denied = true
	if r := read(t, source, "gone"); r.Complete {
		t.Errorf("none can be got: %+v", r)
	}
	s.faults["get 1"] = slices.Repeat([]fault{500}, 9)
	if _, err := source.Read(t.Context(), announcement.Question{Now: now, Open: []string{"gone"}}); err == nil {
		t.Error("a reading without an answer")
	}
}

// Whatever goes wrong on page 3 of 5, and stays so, leaves no reading; what the retries
// get over leaves the whole one.
func TestFaults(t *testing.T) {
	for _, f := range []fault{429, 500, 502, 503, 504, 401, 404, 400, 0} {
		for _, times := range []int{1, 9} {
			t.Run(fmt.Sprint(f, " ", times), func(t *testing.T) {
				t.Parallel()
				s := serve(t)
				s.page = 10
				for i := range 50 {
					s.events = append(s.events, one(fmt.Sprint("e", i)))
				}
				s.faults["list 3"] = slices.Repeat([]fault{f}, times)
				r, err := connect(t, s).Read(t.Context(), announcement.Question{Now: now})
				passes := times == 1 && (f == 429 || f >= 500)
				switch {
				case passes && (err != nil || len(r.Announcements) != 50 || r.Calls != 5):
					t.Errorf("%d announcements, %d calls, %v; want 50 by 5", len(r.Announcements), r.Calls, err)
				case !passes && (f != 0 || times > 1) && (err == nil || r.Announcements != nil):
					t.Errorf("a reading %d, %v; want none", len(r.Announcements), err)
				case f == 0 && err == nil && len(r.Announcements) != 50:
					t.Errorf("part of a reading: %d", len(r.Announcements))
				case times > 1 && (f == 429 || f >= 500) && len(s.faults["list 3"]) != 6:
					t.Errorf("%d attempts, want 3", 9-len(s.faults["list 3"]))
				}
			})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := connect(t, serve(t)).Read(ctx, announcement.Question{Now: now}); err == nil {
		t.Error("a reading after the end")
	}
}

func TestCheck(t *testing.T) {
	s := serve(t)
	source := connect(t, s, "d")
	if err := source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.faults["list 1"] = []fault{404}
	if err := source.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "policy") {
		t.Errorf("denied: %v", err)
	}
	s.events, s.faults["get 1"] = []event{one("e")}, []fault{401}
	if err := source.Check(t.Context()); err == nil {
		t.Error("an event that can't be got")
	}
	if _, err := New(CloudConfig{Compartments: []string{"c"}, Auth: "magic"}); err == nil || !strings.Contains(err.Error(), "workload, instance or file") {
		t.Errorf("auth: %v", err)
	}
	if _, err := As(CloudConfig{}, nil); err == nil {
		t.Error("a source without compartments")
	}
}

func TestMachine(t *testing.T) {
	for providerID, want := range map[string]string{
		instance:                       instance,
		"oci://" + instance:            instance,
		"ocid1.instance.oc1..aaa":      "ocid1.instance.oc1..aaa",
		"":                             "",
		"ocid1.instance.oc1.phx.":      "",
		"ocid1.volume.oc1.phx.aaa":     "",
		"oci://oci://" + instance:      "",
		"aws:///us-west-2a/i-01234567": "",
		instance + "/x":                "",
		instance + "\n":                "",
	} {
		got, ok := (&Source{}).Machine(providerID)
		if got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v; want %q", providerID, got, ok, want)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add(instance)
	f.Add("oci://ocid1.instance.oc1.phx.a")
	f.Fuzz(func(t *testing.T, providerID string) {
		got, ok := (&Source{}).Machine(providerID)
		if ok != (got != "") || ok && (strings.TrimPrefix(providerID, "oci://") != got || strings.ContainsAny(got, "/\n ")) {
			t.Errorf("%q is %q, %v", providerID, got, ok)
		}
	})
}

// The end of a window is read from two durations of ISO 8601, or not at all.
func TestDurations(t *testing.T) {
	for text, hours := range map[string]float64{
		"PT0S": 0, "P1D": 24, "P1DT12H": 36, "PT90M": 1.5, "PT3600S": 1, "P": -1, "PT": -1, "": -1, "P1M": -1, "1H": -1, "P1DT": -1, "PT-1H": -1,
	} {
		s := serve(t)
		s.events = []event{one("e", "startWindowDuration", text, "estimatedDuration", "PT0S")}
		a := only(t, read(t, connect(t, s)))
		if want := in(2 + hours); hours >= 0 && !a.End.Equal(want) || hours < 0 && !a.End.IsZero() {
			t.Errorf("%q ends %s, want %v hours", text, a.End, hours)
		}
	}
}

// fleet is 10,000 events of 10,000 instances, of which 2,000 are open.
func fleet(s *server) (open []string) {
	for i := range 10_000 {
		e := one(fmt.Sprintf("e%05d", i), "instanceId", fmt.Sprint("ocid1.instance.oc1.phx.", i))
		if i%5 != 0 {
			e["lifecycleState"] = "SUCCEEDED"
		} else {
			open = append(open, e["id"].(string))
		}
		s.events = append(s.events, e)
	}
	return open
}

func TestCallsOfALargeFleet(t *testing.T) {
	testkit.Long(t, "the faults on a page in the middle, and the lives, read page by page")
	s := serve(t)
	open := fleet(s)
	source := connect(t, s)
	if r := read(t, source, open...); len(r.Announcements) != 2000 || r.Calls != 10 || len(s.requests) != 10 || !r.Complete {
		t.Errorf("%d announcements by %d calls, %d requests", len(r.Announcements), r.Calls, len(s.requests))
	}
}

func BenchmarkRead(b *testing.B) {
	s := serve(b)
	open := fleet(s)
	source := connect(b, s)
	b.ReportAllocs()
	for b.Loop() {
		r, err := source.Read(b.Context(), announcement.Question{Now: now, Open: open})
		if err != nil || len(r.Announcements) != 2000 {
			b.Fatal(len(r.Announcements), err)
		}
		s.requests = nil
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
