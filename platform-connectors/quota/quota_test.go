package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/quota"
)

func TestLevels(t *testing.T) {
	both := quota.Limits{Bytes: 1000, Records: 10}
	for _, tc := range []struct {
		limits quota.Limits
		use    quota.Use
		want   quota.Level
		share  float64
	}{
		{both, quota.Use{}, quota.Within, 0},
		{both, quota.Use{Bytes: 999, Records: 9}, quota.Within, 0.999},
		{both, quota.Use{Bytes: 1000}, quota.Beyond, 1},
		{both, quota.Use{Records: 10}, quota.Beyond, 1},
		{both, quota.Use{Bytes: 1999, Records: 19}, quota.Beyond, 1.999},
		{both, quota.Use{Bytes: 2000}, quota.Spent, 2},
		{both, quota.Use{Records: 20}, quota.Spent, 2},
		{quota.Limits{Records: 10}, quota.Use{Bytes: 1 << 60}, quota.Within, 0},
		{quota.Limits{}, quota.Use{Bytes: 1 << 60, Records: 1 << 60}, quota.Within, 0},
	} {
		if got, share := tc.limits.Level(tc.use), tc.limits.Share(tc.use); got != tc.want || share != tc.share {
			t.Errorf("%+v of %+v: level %d, share %v; want %d, %v", tc.use, tc.limits, got, share, tc.want, tc.share)
		}
	}
}

func TestUse(t *testing.T) {
	if got := (quota.Use{Bytes: 1, Records: 20}).Plus(quota.Use{Bytes: 300, Records: 4000}); got != (quota.Use{Bytes: 301, Records: 4020}) {
		t.Errorf("%+v", got)
	}
	counted := ""
	for _, v := range append(quota.Verdicts(), quota.Store) {
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

func said(text string) func(*record.Record) { return func(r *record.Record) { r.Event.Message = text } }

// TestDecide tells lives of connections: each event with what becomes of it.
func TestDecide(t *testing.T) {
	type step struct {
		after time.Duration
		r     record.Record
		want  quota.Verdict
	}
	for name, tc := range map[string]struct {
		level quota.Level
		steps []step
	}{
		"within its quota everything is stored": {quota.Within, []step{
			{0, event("f", "0"), quota.Store}, {0, event("f", "0"), quota.Store}, {0, event("f", "0", observed), quota.Store}, {0, event("r", "0"), quota.Store},
		}},
		"beyond it what is for the record only is counted": {quota.Beyond, []step{
			{0, event("f", "0", observed), quota.Observed}, {0, event("r", "0", observed), quota.Observed},
		}},
		"an observation makes no fault a repeat": {quota.Beyond, []step{
			{0, event("f", "0", observed), quota.Observed}, {0, event("f", "0"), quota.Store},
		}},
		"the first of each fault is stored, a repeat in other words is counted": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store}, {time.Second, event("f", "0", said("other words")), quota.Repeat},
			{0, event("f", "1"), quota.Store}, {0, event("f", "1"), quota.Repeat}, {0, event("f", "0"), quota.Repeat},
		}},
		"what somebody decides by is no repeat": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.IsFatal = false }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.RecommendedAction = record.ActionReplaceVM }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.CustomRecommendedAction = "x" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.ErrorCode = []string{"48"} }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.Agent = "b" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.ComponentClass = "NIC" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.DrainOverrides = &record.Override{Force: true} }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.QuarantineOverrides = &record.Override{Skip: true} }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Event.Metadata = map[string]string{record.MetadataBootID: "b2"} }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Node.BootID = "b2" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.Node.ProviderID = "m2" }), quota.Store},
		}},
		"a fault after a recovery is a first one": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store}, {0, event("r", "0"), quota.Store}, {0, event("f", "0"), quota.Store}, {0, event("f", "0"), quota.Repeat},
		}},
		"a recovery of another check ends nothing here": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store}, {0, event("r", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), quota.Store}, {0, event("f", "0"), quota.Repeat},
		}},
		"a recovery again is counted, unless a fault came between": {quota.Beyond, []step{
			{0, event("r", "0"), quota.Store}, {0, event("r", "0"), quota.Repeat}, {0, event("r", ""), quota.Store},
			{0, event("f", "0"), quota.Store}, {0, event("r", "0"), quota.Store},
		}},
		"after a minute it may be over without the node's knowing": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store}, {quota.Window - 1, event("f", "0"), quota.Repeat}, {1, event("f", "0"), quota.Store},
			{quota.Window - 1, event("f", "0"), quota.Repeat},
		}},
		"with a clock that was set back nothing is a repeat": {quota.Beyond, []step{
			{0, event("f", "0"), quota.Store}, {-time.Hour, event("f", "0"), quota.Store},
		}},
		"the same record again is the store's to know": {quota.Beyond, []step{
			{0, event("f", "0", func(r *record.Record) { r.ID = "one" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.ID = "one" }), quota.Store},
			{0, event("f", "0", func(r *record.Record) { r.ID = "two" }), quota.Repeat},
		}},
		"with the reserve spent, faults of a check are one": {quota.Spent, []step{
			{0, event("f", "0"), quota.Merge}, {0, event("f", "1"), quota.Repeat}, {0, event("f", "2"), quota.Repeat},
			{0, event("f", "0", func(r *record.Record) { r.Event.ErrorCode = []string{"48"} }), quota.Merge},
			{0, event("f", "0", func(r *record.Record) { r.Event.CheckName = "Y" }), quota.Merge},
			{0, event("f", ""), quota.Repeat}, {0, event("r", "0"), quota.Store}, {0, event("f", "1"), quota.Merge},
		}},
		"a fault that is stored as it is needs no other": {quota.Spent, []step{
			{0, event("f", ""), quota.Store}, {0, event("f", ""), quota.Repeat},
		}},
	} {
		var s quota.Stored
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

// TestWhatIsForgottenIsNew: of another connection, or when nothing was stored, nothing is
// a repeat.
func TestWhatIsForgottenIsNew(t *testing.T) {
	s := quota.Stored{Server: "one"}
	for range 2 {
		if _, v := s.Decide(quota.Beyond, event("f", "0"), testkit.Start); v != quota.Store {
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
	given := event("f", "7", said(strings.Repeat("ä", 4<<10)))
	want := record.Content(given)
	r, v := new(quota.Stored).Decide(quota.Spent, given, testkit.Start)
	if v != quota.Merge || record.Content(r) != want {
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

// TestWhatIsKnownIsBounded: faults beyond the bound make no repeats, and no check loses
// what is known of it.
func TestWhatIsKnownIsBounded(t *testing.T) {
	var s quota.Stored
	for i := range quota.MaxKnown {
		s.Decide(quota.Beyond, event("f", fmt.Sprint(i)), testkit.Start)
	}
	id := 0
	next := func(r *record.Record) { id++; r.ID = fmt.Sprint("next ", id) }
	for range 2 {
		if _, v := s.Decide(quota.Beyond, event("f", "one more", next), testkit.Start); v != quota.Store {
			t.Errorf("one more: %s", v)
		}
	}
	if _, v := s.Decide(quota.Beyond, event("f", "0", func(r *record.Record) { r.ID = "again" }), testkit.Start); v != quota.Repeat {
		t.Errorf("the first again: %s", v)
	}
	if _, v := s.Decide(quota.Beyond, event("f", fmt.Sprint(quota.MaxKnown-1), next), testkit.Start); v != quota.Repeat {
		t.Errorf("the last that is known again: %s", v)
	}
	s.Decide(quota.Beyond, event("r", ""), testkit.Start)
	// What is stored again after the window takes no more room.
	now := testkit.Start
	for range quota.MaxKnown + 1 {
		now = now.Add(quota.Window)
		s.Decide(quota.Beyond, event("f", "again and again", next), now)
	}
	s.Decide(quota.Beyond, event("f", "another", next), now)
	if _, v := s.Decide(quota.Beyond, event("f", "another", next), now); v != quota.Repeat {
		t.Errorf("one of two that are known: %s", v)
	}
	s.Decide(quota.Beyond, event("r", ""), testkit.Start)
	for i, want := range []quota.Verdict{quota.Store, quota.Repeat} {
		if _, v := s.Decide(quota.Beyond, event("f", "one more", func(r *record.Record) { r.ID = fmt.Sprint(i) }), testkit.Start); v != want {
			t.Errorf("after a recovery: %s, want %s", v, want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	r := event("f", "0")
	for _, level := range []quota.Level{quota.Within, quota.Beyond, quota.Spent} {
		b.Run(fmt.Sprint("level ", int(level)), func(b *testing.B) {
			var s quota.Stored
			for i := 0; b.Loop(); i++ {
				s.Decide(level, r, testkit.Start)
			}
		})
	}
}
