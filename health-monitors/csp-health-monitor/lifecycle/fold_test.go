package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

var place = lifecycle.Origin{CSP: "cloud", Cluster: "c", ResourceType: "instance"}

// TestInvalidAnnouncements: an announcement without a name that a store keeps is refused;
// texts are cut and cleaned instead.
func TestInvalidAnnouncements(t *testing.T) {
	for name, a := range map[string]announcement.Announcement{
		"no id": {Machine: "i"}, "no machine": {ID: "m"}, "a long id": {ID: strings.Repeat("x", 401), Machine: "i"},
		"U+0000": {ID: "m\x00", Machine: "i"}, "invalid UTF-8": {ID: "m", Machine: "i\xff"},
	} {
		if _, change := lifecycle.Fold(nil, a, place, "", start); change != lifecycle.Refused {
			t.Errorf("%s: %s", name, change)
		}
	}
	metadata := map[string]string{}
	for i := range 40 {
		metadata[fmt.Sprintf("key-%02d", i)] = strings.Repeat("\u00e9", 2000)
	}
	e, change := lifecycle.Fold(nil, announcement.Announcement{
		ID: "m", Machine: "i", Text: strings.Repeat("\u20ac", 3000) + "\x00", Code: "a\x00b", Metadata: metadata,
		Begin: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Action: protos.RecommendedAction(99),
	}, place, "", start)
	if change != lifecycle.First || len(e.Description) > 4<<10 || !utf8.ValidString(e.Description) || e.Code != "a b" || len(e.Metadata) != 32 ||
		len(e.Metadata["key-31"]) > 1<<10 || e.ScheduledStart != nil || e.RecommendedAction != "NONE" {
		t.Errorf("%s: %d bytes of text, code %q, %d entries, start %v, action %s", change, len(e.Description), e.Code, len(e.Metadata), e.ScheduledStart, e.RecommendedAction)
	}
}

// TestLongestID: an id of the longest length is kept whole, one that is longer is not cut.
func TestLongestID(t *testing.T) {
	for length, want := range map[int]lifecycle.Change{399: lifecycle.First, 400: lifecycle.First, 401: lifecycle.Refused} {
		id := strings.Repeat("x", length)
		e, change := lifecycle.Fold(nil, announcement.Announcement{ID: id, Machine: "i"}, place, "", start)
		if change != want || change == lifecycle.First && e.EventID != id {
			t.Errorf("an id of %d bytes: %s, kept as %d bytes", length, change, len(e.EventID))
		}
	}
}

// TestTimesThatAreKept: those of the years that every store can hold, 1 to 9999.
func TestTimesThatAreKept(t *testing.T) {
	for year, kept := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 9998: true, 9999: true, 10000: false} {
		begin := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		e, _ := lifecycle.Fold(nil, announcement.Announcement{ID: "m", Machine: "i", Begin: begin}, place, "", start)
		if (e.ScheduledStart != nil) != kept || kept && !e.ScheduledStart.Equal(begin) {
			t.Errorf("a window that begins in the year %d is kept as %v", year, e.ScheduledStart)
		}
	}
}

// TestOmittedAnnouncementIsRemembered: an announcement that reports less than one before takes
// nothing away.
func TestOmittedAnnouncementIsRemembered(t *testing.T) {
	output := announcement.Announcement{
		ID: "m", Machine: "i", Code: "REBOOT", Text: "a reboot", Unplanned: true, Emergency: true, Begin: start, End: start.Add(time.Hour),
		Action: protos.RecommendedAction_RESTART_VM, Metadata: map[string]string{"rack": "7"},
	}
	e, _ := lifecycle.Fold(nil, output, place, "n", start)
	after, change := lifecycle.Fold(&e, announcement.Announcement{ID: "m", Machine: "i"}, place, "n", start.Add(time.Minute))
	if change != lifecycle.Unchanged || !reflect.DeepEqual(after, e) {
		t.Errorf("%s: %+v, was %+v", change, after, e)
	}
	output.Metadata = map[string]string{"rack": "8"}
	if after, change := lifecycle.Fold(&e, output, place, "n", start); change != lifecycle.Updated || after.Metadata["rack"] != "8" {
		t.Errorf("other metadata: %s, %v", change, after.Metadata)
	}
}

// TestTheNodeOfADocument: it follows the machine until a fault is decided; then it is the
// one that the fault is about.
func TestTheNodeOfADocument(t *testing.T) {
	reported := &maintenance.Report{ID: "t"}
	for name, c := range map[string]struct {
		before maintenance.Event
		now    string
		want   string
	}{
		"the machine gets its Node":            {maintenance.Event{}, "n", "n"},
		"the machine's Node gets another name": {maintenance.Event{NodeName: "old"}, "n", "n"},
		"the Node is away":                     {maintenance.Event{NodeName: "old"}, "", "old"},
		"a fault reported of the old name":     {maintenance.Event{NodeName: "old", Quarantined: reported}, "n", "old"},
		"a fault of the old name is on its way": {
			maintenance.Event{NodeName: "old", Waiting: &maintenance.Waiting{Stage: maintenance.Quarantine}}, "n", "old",
		},
		"the document is closed": {
			maintenance.Event{NodeName: "old", Finished: true, Outcome: string(lifecycle.EventRefused)}, "n", "old",
		},
	} {
		c.before.EventID, c.before.ResourceID, c.before.CSPStatus = "m", "i", maintenance.Pending
		a := announcement.Announcement{ID: "m", Machine: "i", Text: "said again"}
		if e, change := lifecycle.Fold(&c.before, a, place, c.now, start); change != lifecycle.Updated || e.NodeName != c.want {
			t.Errorf("%s: %s, %q, want %q", name, change, e.NodeName, c.want)
		}
	}
}

// TestAnEndWithoutATime: of a document that has ended nobody knows when, no window is
// behind the end.
func TestAnEndWithoutATime(t *testing.T) {
	before := maintenance.Event{EventID: "m", ResourceID: "i", CSPStatus: maintenance.Completed}
	a := announcement.Announcement{ID: "m", Machine: "i", Begin: start.Add(time.Hour)}
	if e, change := lifecycle.Fold(&before, a, place, "n", start); change != lifecycle.Stale || e.CSPStatus != maintenance.Completed {
		t.Errorf("%s, %s", change, e.CSPStatus)
	}
}

// FuzzFold: whatever a provider reports one after the other, only a clear report reopens what it
// has ended, nothing is decided but what is due, and the document survives its stored form.
func FuzzFold(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0, 1}, "text", int16(30))
	f.Add([]byte{2, 0, 1, 3, 1, 0}, "\x00\xff", int16(-30))
	f.Fuzz(func(t *testing.T, states []byte, text string, minutes int16) {
		all := []announcement.State{announcement.Scheduled, announcement.Ongoing, announcement.Completed, announcement.Cancelled, "whatever"}
		var e *maintenance.Event
		policy := lifecycle.DefaultPolicy()
		faults := 0
		for i, b := range states {
			now := start.Add(time.Duration(i) * time.Minute)
			a := announcement.Announcement{
				ID: "m", Machine: "i", State: all[int(b)%len(all)], Code: text, Text: text, Begin: start.Add(time.Duration(minutes) * time.Minute),
			}
			next, change := lifecycle.Fold(e, a, place, "n", now)
			if e != nil && e.CSPStatus.Ended() && !next.CSPStatus.Ended() && change != lifecycle.Reopened {
				t.Fatalf("%s undid the end: %s", change, next.CSPStatus)
			}
			for range 2 { // decided, and acknowledged
				v := lifecycle.Decide(next, lifecycle.Facts{Known: true, Node: "n", Ready: true, Kubelet: kubelet.Alive}, policy, now)
				next = lifecycle.Apply(next, v, policy, now)
				if w := next.Waiting; w != nil {
					switch {
					case !w.Event.IsHealthy && w.Event.IsFatal:
						faults++
					case w.Event.IsHealthy:
						faults--
					}
					next = lifecycle.Acknowledge(next, now)
				}
			}
			if faults < 0 || faults > 1 {
				t.Fatalf("%d faults stand", faults)
			}
			stored, err := json.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			var again maintenance.Event
			if err := json.Unmarshal(stored, &again); err != nil || !reflect.DeepEqual(next, again) {
				t.Fatalf("%v: stored as %+v, read as %+v", err, next, again)
			}
			e = &again
		}
	})
}
