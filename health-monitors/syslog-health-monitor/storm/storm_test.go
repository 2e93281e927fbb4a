package storm_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/storm"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func fault(at time.Time, gpu, code, text string) *protos.HealthEvent {
	return &protos.HealthEvent{
		CheckName: "XID", ErrorCode: []string{code}, Message: text, GeneratedTimestamp: timestamppb.New(at),
		EntitiesImpacted: []*protos.Entity{{EntityType: "PCI", EntityValue: gpu}}, Metadata: map[string]string{"bootID": "b"},
	}
}

// summarize writes events down: text, and how many they stand for.
func summarize(events []*protos.HealthEvent) (out []string) {
	for _, e := range events {
		n, _ := record.FromProto(e).Repeats()
		out = append(out, fmt.Sprintf("%s x%d", e.Message, n))
	}
	return out
}

func expect(t *testing.T, got []*protos.HealthEvent, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, summarize(got)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func texts(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%d x1", i))
	}
	return out
}

func TestAStormIsItsFirstACountAMinuteAndItsLast(t *testing.T) {
	var c storm.Counter
	var got []string
	n := 0
	for at := start; at.Before(start.Add(150 * time.Second)); at = at.Add(10 * time.Millisecond) {
		got = append(got, summarize(c.Take(at, fault(at, "3b", "31", fmt.Sprint(n))))...)
		got = append(got, summarize(c.Due(at))...)
		n++
	}
	end := start.Add(150 * time.Second)
	for i := range 200 {
		got = append(got, summarize(c.Due(end.Add(time.Duration(i)*time.Second)))...)
	}
	want := append(texts(10), "6000 x5991", "12000 x6000", "14999 x2999")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// The window has passed quietly: it is a first one again.
	at := end.Add(4 * time.Minute)
	expect(t, c.Take(at, fault(at, "3b", "31", "again")), "again x1")
}

func TestOthersPassByAStorm(t *testing.T) {
	var c storm.Counter
	for i := range 1000 {
		c.Take(start, fault(start, "3b", "31", fmt.Sprint(i)))
	}
	expect(t, c.Take(start, fault(start, "3b", "79", "another code")), "another code x1")
	expect(t, c.Take(start, fault(start, "5e", "31", "another GPU")), "another GPU x1")
	other := fault(start, "3b", "31", "other registers")
	other.Metadata["REG0"] = "1"
	expect(t, c.Take(start, other), "other registers x1")
	expect(t, c.Take(start, fault(start, "3b", "31", "of the storm")))
	if !c.Pending() {
		t.Error("nothing is held")
	}
}

func TestRecoveryFollowsCountedFaults(t *testing.T) {
	var c storm.Counter
	for i := range 30 {
		e := fault(start, "3b", "31", fmt.Sprint(i))
		c.Take(start, e)
		e = fault(start, "3b", "31", fmt.Sprint("s", i))
		e.CheckName = "SXID"
		c.Take(start, e)
	}
	expect(t, c.End(start, "XID"), "29 x20")
	expect(t, c.Take(start, fault(start, "3b", "31", "new")), "new x1")
	expect(t, c.End(start, ""), "s29 x20")
	if c.Pending() {
		t.Error("something is held")
	}
}

func TestTimesOfACount(t *testing.T) {
	var c storm.Counter
	for range storm.Burst {
		c.Take(start, fault(start, "3b", "31", "x"))
	}
	// 70 bursts two seconds apart, read at once: one record cannot hold them.
	var out []*protos.HealthEvent
	for i := range 70 {
		at := start.Add(time.Duration(2*i) * time.Second)
		out = append(out, c.Take(start, fault(at, "3b", "31", fmt.Sprint(i)))...)
		out = append(out, c.Take(start, fault(at.Add(time.Millisecond), "3b", "31", fmt.Sprint(i)))...)
	}
	// A clock that goes back joins them to the last burst.
	c.Take(start, fault(start, "3b", "31", "late"))
	out = append(out, c.End(start, "")...)
	expect(t, out, "63 x128", "late x13")
	bursts := record.FromProto(out[1]).Bursts()
	want := record.Burst{From: start.Add(138 * time.Second), To: start.Add(138*time.Second + time.Millisecond), Count: 3}
	if len(bursts) != 6 || cmp.Diff(want, bursts[5]) != "" || !out[1].GeneratedTimestamp.AsTime().Equal(want.To) {
		t.Errorf("bursts %v of an event of %s", bursts, out[1].GeneratedTimestamp.AsTime())
	}
}

func TestLostLinesAddUp(t *testing.T) {
	var c storm.Counter
	for i := range storm.Burst + 3 {
		e := fault(start, "", "GAP", "x")
		e.Metadata[storm.MetadataLost] = fmt.Sprint(100 + i)
		c.Take(start, e)
	}
	out := c.End(start, "")
	if expect(t, out, "x x3"); len(out) == 1 && out[0].Metadata[storm.MetadataLost] != "333" {
		t.Errorf("lost %s", out[0].Metadata[storm.MetadataLost])
	}
}

func TestBounds(t *testing.T) {
	var c storm.Counter
	for i := range storm.MaxKinds + 5 {
		for range storm.Burst + 1 {
			c.Take(start, fault(start, "3b", fmt.Sprint(i), "x"))
		}
	}
	if len(c.Kinds) != storm.MaxKinds || len(c.End(start, "")) != storm.MaxCounted {
		t.Errorf("%d kinds", len(c.Kinds))
	}
	c = storm.Counter{}
	long := fault(start, "3b", "31", strings.Repeat("x", storm.MaxEvent))
	for range 20 {
		if len(c.Take(start, long)) != 1 {
			t.Error("a long event was counted")
		}
	}
	// Kinds whose window has passed make space.
	for i := range storm.MaxKinds {
		c.Take(start, fault(start, "3b", fmt.Sprint(i), "x"))
	}
	later := start.Add(storm.Window)
	c.Take(later, fault(later, "3b", "new", "x"))
	if len(c.Kinds) != 1 {
		t.Errorf("%d kinds after their window", len(c.Kinds))
	}
}

// TestACounterOutlivesItsProcess: encoded and decoded in the middle, nothing is
// counted twice or forgotten, and a copy shares nothing with its original.
func TestACounterOutlivesItsProcess(t *testing.T) {
	var c storm.Counter
	var got []string
	for i := range 40 {
		kept := c.Clone()
		kept.Take(start, fault(start, "3b", "31", "never happened"))
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		c = storm.Counter{}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		got = append(got, summarize(c.Take(start, fault(start, "3b", "31", fmt.Sprint(i))))...)
	}
	got = append(got, summarize(c.Due(start.Add(storm.QuietPeriod)))...)
	if diff := cmp.Diff(append(texts(10), "39 x30"), got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if slices.Contains(got, "never happened x1") {
		t.Error("a copy changed its original")
	}
}

// TestCountMessage: one event has no repeats, several have their times: those within a second
// of each other are one burst.
func TestCountMessage(t *testing.T) {
	for name, c := range map[string]struct {
		after []time.Duration // since the start, of what is counted
		want  string          // repeats
		times string
	}{
		"one":               {[]time.Duration{0}, "", ""},
		"two in one burst":  {[]time.Duration{0, time.Second - 1}, "2", "999+999x2"},
		"two in two bursts": {[]time.Duration{0, time.Second}, "2", "1000+0x1,0+0x1"},
	} {
		var counter storm.Counter
		for range storm.Burst {
			counter.Take(start, fault(start, "3b", "31", "x"))
		}
		for _, after := range c.after {
			e := fault(start.Add(after), "3b", "31", "x")
			counter.Take(start.Add(after), e)
		}
		got := counter.End(start.Add(time.Hour), "")
		if len(got) != 1 {
			t.Fatalf("%s: %d events", name, len(got))
		}
		m := got[0].Metadata
		if _, lost := m[storm.MetadataLost]; lost || m[record.MetadataRepeats] != c.want || m[record.MetadataRepeatTimes] != c.times || m["bootID"] != "b" {
			t.Errorf("%s: metadata %v", name, m)
		}
	}
}

// TestLargeEventsAreNotCounted: what is larger than the bound passes, one at it does not.
func TestLargeEventsAreNotCounted(t *testing.T) {
	var c storm.Counter
	passed := func(message int) int {
		n := 0
		for range storm.Burst + 1 {
			n += len(c.Take(start, fault(start, "3b", "31", strings.Repeat("x", message))))
		}
		c.End(start, "")
		return n
	}
	e := fault(start, "3b", "31", "")
	e.GeneratedTimestamp = nil
	capacity := storm.MaxEvent - proto.Size(e)
	if at, over := passed(capacity), passed(capacity+1); at != storm.Burst || over != storm.Burst+1 {
		t.Errorf("%d of %d events at the bound pass, and %d beyond it", at, storm.Burst+1, over)
	}
}
