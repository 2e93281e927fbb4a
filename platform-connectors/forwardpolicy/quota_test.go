package forwardpolicy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
)

func TestLevels(t *testing.T) {
	both := forwardpolicy.Quota{Bytes: 1000, Records: 10}
	for _, tc := range []struct {
		limits forwardpolicy.Quota
		use    forwardpolicy.Use
		want   forwardpolicy.Level
		share  float64
	}{
		{both, forwardpolicy.Use{}, forwardpolicy.Within, 0},
		{both, forwardpolicy.Use{Bytes: 999, Records: 9}, forwardpolicy.Within, 0.999},
		{both, forwardpolicy.Use{Bytes: 1000}, forwardpolicy.Beyond, 1},
		{both, forwardpolicy.Use{Records: 10}, forwardpolicy.Beyond, 1},
		{both, forwardpolicy.Use{Bytes: 1999, Records: 19}, forwardpolicy.Beyond, 1.999},
		{both, forwardpolicy.Use{Bytes: 2000}, forwardpolicy.Spent, 2},
		{both, forwardpolicy.Use{Records: 20}, forwardpolicy.Spent, 2},
		{forwardpolicy.Quota{Records: 10}, forwardpolicy.Use{Bytes: 1 << 60}, forwardpolicy.Within, 0},
		{forwardpolicy.Quota{}, forwardpolicy.Use{Bytes: 1 << 60, Records: 1 << 60}, forwardpolicy.Within, 0},
	} {
		if got, share := tc.limits.Level(tc.use), tc.limits.Share(tc.use); got != tc.want || share != tc.share {
			t.Errorf("%+v of %+v: level %d, share %v; want %d, %v", tc.use, tc.limits, got, share, tc.want, tc.share)
		}
	}
}

func TestUse(t *testing.T) {
	if got := (forwardpolicy.Use{Bytes: 1, Records: 20}).Plus(forwardpolicy.Use{Bytes: 300, Records: 4000}); got != (forwardpolicy.Use{Bytes: 301, Records: 4020}) {
		t.Errorf("%+v", got)
	}
	counted := ""
	for _, v := range append(forwardpolicy.Verdicts(), forwardpolicy.Store) {
		counted += fmt.Sprint(v, " ", v.Counted(), " ")
	}
	if counted != "merge false persist-only true repeat true store false " {
		t.Errorf("counted: %s", counted)
	}
}

// event is a record of a life, in short: "f" a fault, "r" a recovery, what it is about, and
// anything that edits it.
func event(kind, gpu string, edit ...func(*record.Record)) record.Record {
	r := record.Record{Event: record.Event{
		Version: 1, Agent: "a", ComponentClass: "GPU", CheckName: "X", NodeName: "n", ErrorCode: []string{"79"}, IsFatal: true,
		RecommendedAction: record.ActionRestartVM, ProcessingStrategy: record.Process, Message: "text of " + gpu,
	}}
	if kind == "r" {
		r.Event.IsHealthy, r.Event.IsFatal, r.Event.ErrorCode = true, false, nil
	}
	if gpu != "" {
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU", EntityValue: gpu}}
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func observed(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }

func withMessage(text string) func(*record.Record) {
	return func(r *record.Record) { r.Event.Message = text }
}

// TestDecide plays connections: each event with what becomes of it.
func TestDecide(t *testing.T) {
	type step struct {
		after time.Duration
		r     record.Record
		want  forwardpolicy.Verdict
	}
	for name, tc := range map[string]struct {
		level forwardpolicy.Level
		steps []step
	}{
		"within its quota everything is stored": {forwardpolicy.Within, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {0, event("f", "0"), forwardpolicy.Store}, {0, event("f", "0", observed), forwardpolicy.Store}, {0, event("r", "0"), forwardpolicy.Store},
		}},
		"beyond it what is for the record only is counted": {forwardpolicy.Beyond, []step{
			{0, event("f", "0", observed), forwardpolicy.Observed}, {0, event("r", "0", observed), forwardpolicy.Observed},
		}},
		"an observation makes no fault a repeat": {forwardpolicy.Beyond, []step{
			{0, event("f", "0", observed), forwardpolicy.Observed}, {0, event("f", "0"), forwardpolicy.Store},
		}},
		"the first of each fault is stored, a repeat in other words is counted": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {time.Second, event("f", "0", withMessage("other words")), forwardpolicy.Repeat},
			{0, event("f", "1"), forwardpolicy.Store}, {0, event("f", "1"), forwardpolicy.Repeat}, {0, event("f", "0"), forwardpolicy.Repeat},
		}},
		"what somebody decides by is no repeat": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.IsFatal = false }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.RecommendedAction = record.ActionReplaceVM }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.CustomRecommendedAction = "x" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.ErrorCode = []string{"48"} }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.Agent = "b" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.ComponentClass = "NIC" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.DrainOverrides = &record.Override{Force: true} }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.QuarantineOverrides = &record.Override{Skip: true} }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.Metadata = map[string]string{record.MetadataBootID: "b2"} }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Node.BootID = "b2" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.Node.ProviderID = "m2" }), forwardpolicy.Store},
		}},
		"a fault after a recovery is a first one": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {0, event("r", "0"), forwardpolicy.Store}, {0, event("f", "0"), forwardpolicy.Store}, {0, event("f", "0"), forwardpolicy.Repeat},
		}},
		"a recovery of another check ends nothing here": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {0, event("r", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), forwardpolicy.Store}, {0, event("f", "0"), forwardpolicy.Repeat},
		}},
		"a recovery again is counted, unless a fault came between": {forwardpolicy.Beyond, []step{
			{0, event("r", "0"), forwardpolicy.Store}, {0, event("r", "0"), forwardpolicy.Repeat}, {0, event("r", ""), forwardpolicy.Store},
			{0, event("f", "0"), forwardpolicy.Store}, {0, event("r", "0"), forwardpolicy.Store},
		}},
		"after a minute it may be over without the node's knowing": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {forwardpolicy.RepeatWindow - 1, event("f", "0"), forwardpolicy.Repeat}, {1, event("f", "0"), forwardpolicy.Store},
			{forwardpolicy.RepeatWindow - 1, event("f", "0"), forwardpolicy.Repeat},
		}},
		"with a clock that was reset nothing is a repeat": {forwardpolicy.Beyond, []step{
			{0, event("f", "0"), forwardpolicy.Store}, {-time.Hour, event("f", "0"), forwardpolicy.Store},
		}},
		"the same record again is the store's to know": {forwardpolicy.Beyond, []step{
			{0, event("f", "0", func(r *record.Record) { r.ID = "one" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.ID = "one" }), forwardpolicy.Store},
			{0, event("f", "0", func(r *record.Record) { r.ID = "two" }), forwardpolicy.Repeat},
		}},
		"with the reserve spent, faults of a check are one": {forwardpolicy.Spent, []step{
			{0, event("f", "0"), forwardpolicy.Merge}, {0, event("f", "1"), forwardpolicy.Repeat}, {0, event("f", "2"), forwardpolicy.Repeat},
			{0, event("f", "0", func(r *record.Record) { r.Event.ErrorCode = []string{"48"} }), forwardpolicy.Merge},
			{0, event("f", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), forwardpolicy.Merge},
			{0, event("f", ""), forwardpolicy.Repeat}, {0, event("r", "0"), forwardpolicy.Store}, {0, event("f", "1"), forwardpolicy.Merge},
		}},
		"a fault that is stored as it is needs no other": {forwardpolicy.Spent, []step{
			{0, event("f", ""), forwardpolicy.Store}, {0, event("f", ""), forwardpolicy.Repeat},
		}},
	} {
		var s forwardpolicy.Stored
		now := testkit.Start
		for i, x := range tc.steps {
			now = now.Add(x.after)
			x.r.ID = max(x.r.ID, fmt.Sprint(i))
			if _, got := s.Decide(tc.level, x.r, now); got != x.want {
				t.Errorf("%s: step %d: %s, want %s", name, i, got, x.want)
			}
		}
	}
}

// TestEvictedIdentityIsNew: of another connection, or when nothing was stored, nothing is
// a repeat.
func TestEvictedIdentityIsNew(t *testing.T) {
	s := forwardpolicy.Stored{Server: "one"}
	for range 2 {
		if _, v := s.Decide(forwardpolicy.Beyond, event("f", "0"), testkit.Start); v != forwardpolicy.Store {
			t.Errorf("the first of a fault: %s", v)
		}
		s.Forget()
	}
	if s.Server != "one" {
		t.Error("the store is forgotten")
	}
}

// TestAFaultThatStandsForOthers is cleared by a recovery of the whole check alone, asks for
// the same, and is known again by the content that was accepted.
func TestAFaultThatStandsForOthers(t *testing.T) {
	given := event("f", "7", withMessage(strings.Repeat("ä", 4<<10)))
	want := record.Content(given)
	r, v := new(forwardpolicy.Stored).Decide(forwardpolicy.Spent, given, testkit.Start)
	if v != forwardpolicy.Merge || record.Content(r) != want {
		t.Errorf("verdict %s, content %s, want %s", v, record.Content(r), want)
	}
	entries := fault.Entries(r.Event)
	if len(entries) != 1 || len(entries[0].Names) != 0 || entries[0].Code != "79" {
		t.Errorf("its faults are %+v", entries)
	}
	if fault.Clears(event("r", "7").Event, r.Event, entries[0]) {
		t.Error("the recovery of one GPU clears it")
	}
	if !fault.Clears(event("r", "").Event, r.Event, entries[0]) {
		t.Error("the recovery of the check does not clear it")
	}
	if len(r.Event.Message) > 2<<10 || !strings.HasSuffix(r.Event.Message, "ä") || r.Event.RecommendedAction != given.Event.RecommendedAction || !r.Event.IsFatal {
		t.Errorf("it is %+v", r.Event)
	}
	if len(given.Event.EntitiesImpacted) != 1 {
		t.Error("what was given is changed")
	}
}

// TestStoredIdentitiesAreBounded: faults beyond the bound make no repeats, and no check loses
// what is known of it.
func TestStoredIdentitiesAreBounded(t *testing.T) {
	var s forwardpolicy.Stored
	for i := range forwardpolicy.MaxStored {
		s.Decide(forwardpolicy.Beyond, event("f", fmt.Sprint(i)), testkit.Start)
	}
	id := 0
	next := func(r *record.Record) { id++; r.ID = fmt.Sprint("next ", id) }
	for range 2 {
		if _, v := s.Decide(forwardpolicy.Beyond, event("f", "one more", next), testkit.Start); v != forwardpolicy.Store {
			t.Errorf("one more: %s", v)
		}
	}
	if _, v := s.Decide(forwardpolicy.Beyond, event("f", "0", func(r *record.Record) { r.ID = "again" }), testkit.Start); v != forwardpolicy.Repeat {
		t.Errorf("the first again: %s", v)
	}
	if _, v := s.Decide(forwardpolicy.Beyond, event("f", fmt.Sprint(forwardpolicy.MaxStored-1), next), testkit.Start); v != forwardpolicy.Repeat {
		t.Errorf("the last that is known again: %s", v)
	}
	s.Decide(forwardpolicy.Beyond, event("r", ""), testkit.Start)
	// What is stored again after the window takes no more room.
	now := testkit.Start
	for range forwardpolicy.MaxStored + 1 {
		now = now.Add(forwardpolicy.RepeatWindow)
		s.Decide(forwardpolicy.Beyond, event("f", "again and again", next), now)
	}
	s.Decide(forwardpolicy.Beyond, event("f", "another", next), now)
	if _, v := s.Decide(forwardpolicy.Beyond, event("f", "another", next), now); v != forwardpolicy.Repeat {
		t.Errorf("one of two that are known: %s", v)
	}
	s.Decide(forwardpolicy.Beyond, event("r", ""), testkit.Start)
	for i, want := range []forwardpolicy.Verdict{forwardpolicy.Store, forwardpolicy.Repeat} {
		if _, v := s.Decide(forwardpolicy.Beyond, event("f", "one more", func(r *record.Record) { r.ID = fmt.Sprint(i) }), testkit.Start); v != want {
			t.Errorf("after a recovery: %s, want %s", v, want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	r := event("f", "0")
	for _, level := range []forwardpolicy.Level{forwardpolicy.Within, forwardpolicy.Beyond, forwardpolicy.Spent} {
		b.Run(fmt.Sprint("level ", int(level)), func(b *testing.B) {
			var s forwardpolicy.Stored
			for i := 0; b.Loop(); i++ {
				s.Decide(level, r, testkit.Start)
			}
		})
	}
}
