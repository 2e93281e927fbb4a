package lifecycle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// decided is a maintenance of a code whose fault waits to be reported.
func decided(t *testing.T, code string) maintenance.Event {
	t.Helper()
	a := announcement.Announcement{ID: "m", Machine: "i", State: announcement.Ongoing, Code: code}
	e, _ := lifecycle.Fold(nil, a, place, "n", start)
	p := lifecycle.DefaultPolicy()
	e = lifecycle.Apply(e, lifecycle.Decide(e, lifecycle.Facts{Known: true, Node: "n", Ready: true, Kubelet: kubelet.Alive}, p, start), p, start)
	if e.Waiting == nil {
		t.Fatal("nothing is to be told")
	}
	return e
}

// TestTheCodeOfAFault: it is the provider's; without one there is none, and the id shows in
// the message which maintenance it is.
func TestTheCodeOfAFault(t *testing.T) {
	for code, want := range map[string]struct {
		codes  []string
		output string
	}{"REBOOT": {[]string{"REBOOT"}, "REBOOT"}, "": {nil, "m"}} {
		event := decided(t, code).Waiting.Event
		if !slices.Equal(event.ErrorCode, want.codes) || !strings.Contains(event.Message, ": "+want.output+" (underway)") {
			t.Errorf("code %q: %q, %q", code, event.ErrorCode, event.Message)
		}
	}
}

// TestARefusedEvent: a person has to look. Nothing more is reported, whatever the provider
// lists, and the document goes when its time is over.
func TestARefusedEvent(t *testing.T) {
	e := lifecycle.Refuse(decided(t, "REBOOT"), start)
	if e.Waiting != nil || !e.Finished || e.Outcome != "event-refused" || e.Status != maintenance.Failed || e.ExpireAt == nil ||
		!e.ExpireAt.Equal(start.Add(lifecycle.Retention)) {
		t.Fatalf("%+v", e)
	}
	a := announcement.Announcement{ID: "m", Machine: "i", State: announcement.Ongoing, Text: "said again"}
	after, change := lifecycle.Fold(&e, a, place, "n", start.Add(time.Hour))
	if change != lifecycle.Updated || !after.Finished || after.Status != maintenance.Failed {
		t.Errorf("%s: finished %v, %s", change, after.Finished, after.Status)
	}
}

// TestAProviderThatCannotBeRead: its fault takes no node out of service, and what is reported
// when it is read again ends it, and not that of another provider.
func TestAProviderThatCannotBeRead(t *testing.T) {
	other := lifecycle.Origin{CSP: "other", Cluster: "c"}
	began := lifecycle.Unreachable(place, "n", start, start.Add(time.Minute))
	ended := lifecycle.Reachable(place, maintenance.Unreachable{NodeName: "n", Since: start}, start.Add(time.Hour))
	elsewhere := lifecycle.Reachable(other, maintenance.Unreachable{NodeName: "n", Since: start}, start.Add(time.Hour))
	x := began.Event
	if began.Stage != maintenance.Quarantine || x.IsHealthy || x.IsFatal || x.ProcessingStrategy != record.PersistOnly ||
		!strings.Contains(x.Message, "cloud cannot be read since 2026-05-01T12:00:00Z") {
		t.Errorf("%s: %+v", began.Stage, x)
	}
	if ended.Stage != maintenance.Healthy || !ended.Event.IsHealthy || ended.Event.ID == x.ID {
		t.Errorf("%s: %+v", ended.Stage, ended.Event)
	}
	entries := fault.Entries(x)
	if len(entries) == 0 {
		t.Error("it is no fault")
	}
	for _, entry := range entries {
		if !fault.Clears(ended.Event, x, entry) || fault.Clears(elsewhere.Event, x, entry) {
			t.Errorf("%v: ended by its recovery %v, by another provider's %v", entry, fault.Clears(ended.Event, x, entry), fault.Clears(elsewhere.Event, x, entry))
		}
	}
}
