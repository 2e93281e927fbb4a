package record_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestSelectorsRestrict: each field of a selector allows what it names, and nothing else.
func TestSelectorsRestrict(t *testing.T) {
	r := record.Record{
		SeqEpoch: "e", Event: record.Event{NodeName: "n", Agent: "a", ProcessingStrategy: record.Process},
		Status: record.Status{
			Session: "s", NodeQuarantined: record.Quarantined, FaultRemediated: record.Yes(), Remediation: &record.Remediation{},
			QuarantineVerdict:      &record.Verdict{Reason: record.Matched},
			UserPodsEvictionStatus: record.EvictionStatus{Status: record.EvictionInProgress}, Faults: []record.Fault{{Key: "k"}},
		},
	}
	type selector = record.Selector
	for name, tt := range map[string]struct{ allows, refuses selector }{
		"node":        {selector{Node: "n"}, selector{Node: "m"}},
		"strategy":    {selector{Strategy: record.Process}, selector{Strategy: record.PersistOnly}},
		"healthy":     {selector{Healthy: record.No()}, selector{Healthy: record.Yes()}},
		"agent":       {selector{Agent: "a"}, selector{Agent: "b"}},
		"not agent":   {selector{NotAgent: "b"}, selector{NotAgent: "a"}},
		"session":     {selector{Session: "s"}, selector{Session: "t"}},
		"quarantined": {selector{Quarantined: []record.Quarantine{record.Quarantined}}, selector{Quarantined: []record.Quarantine{record.AlreadyQuarantined}}},
		"evictions":   {selector{Evictions: []record.Eviction{record.EvictionInProgress}}, selector{Evictions: []record.Eviction{record.EvictionFailed}}},
		"verdicts":    {selector{Verdicts: []record.Reason{record.Matched}}, selector{Verdicts: []record.Reason{"", record.Held}}},
		"remediated":  {selector{Remediated: "true"}, selector{Remediated: "null"}},
		"repaired":    {selector{Repaired: record.Yes()}, selector{Repaired: record.No()}},
		"open":        {selector{Open: record.Yes()}, selector{Open: record.No()}},
		"epoch":       {selector{SeqEpoch: "e"}, selector{SeqEpoch: "f"}},
		"any":         {selector{Any: []selector{{Node: "m"}, {Node: "n"}}}, selector{Any: []selector{{Node: "m"}, {Node: "o"}}}},
	} {
		if !tt.allows.Matches(r) || tt.refuses.Matches(r) {
			t.Errorf("%s: allows %t, refuses %t", name, tt.allows.Matches(r), !tt.refuses.Matches(r))
		}
	}
	if !(selector{}).Matches(r) || !(selector{Verdicts: []record.Reason{""}}).Matches(record.Record{}) {
		t.Error("no restriction restricts, or an unjudged record is judged")
	}
}

// TestSelectorMatchesRecord: the predicates of records, in their corners.
func TestSelectorMatchesRecord(t *testing.T) {
	event := record.Event{RecommendedAction: record.ActionRestartVM, CustomRecommendedAction: "MINE", ProcessingStrategy: record.Process}
	own := event
	own.RecommendedAction = record.ActionCustom
	nameless := own
	nameless.CustomRecommendedAction = ""
	for _, tt := range []struct {
		event  record.Event
		repair *record.Remediation
		want   record.Action
	}{
		{event, nil, record.ActionRestartVM}, {own, nil, "MINE"}, {nameless, nil, record.ActionCustom},
		{event, &record.Remediation{}, record.ActionRestartVM}, {event, &record.Remediation{Action: record.ActionReplaceVM}, record.ActionReplaceVM},
	} {
		if got := record.RepairAction(record.Record{Event: tt.event, Status: record.Status{Remediation: tt.repair}}); got != tt.want {
			t.Errorf("repaired by %s, want %s", got, tt.want)
		}
	}
	for outcome, want := range map[record.Outcome]bool{record.OutcomeNeedsHuman: true, record.OutcomeSucceeded: false} {
		if got := record.RequiresRelease(record.Status{Remediation: &record.Remediation{Outcome: outcome, Reason: record.RepeatOffender}}); got != want {
			t.Errorf("%s: kept %t", outcome, got)
		}
	}
	if record.RequiresRelease(record.Status{}) || record.RequiresRelease(record.Status{Remediation: &record.Remediation{Outcome: record.OutcomeNeedsHuman, Reason: "x"}}) {
		t.Error("what is no lemon is kept")
	}
	for _, q := range []record.Quarantine{record.Quarantined, record.AlreadyQuarantined} {
		r := record.Record{Status: record.Status{NodeQuarantined: q}}
		if !record.InQuarantine(r) {
			t.Errorf("%s: not in quarantine", q)
		}
		if r.Event.IsHealthy = true; record.InQuarantine(r) {
			t.Errorf("%s: a recovery is in quarantine", q)
		}
	}
	now := time.Unix(0, 0)
	for strategy, want := range map[record.Strategy]bool{record.Process: false, record.PersistOnly: true} {
		r := record.Record{Event: record.Event{ProcessingStrategy: strategy}}
		if r.Expire(now); (r.ExpireAt != nil) != want {
			t.Errorf("%s: expires at %v", strategy, r.ExpireAt)
		}
	}
	for runs, want := range map[string][2]string{"": {record.FirstRun, ""}, "b": {"b", ""}, "c b a": {"c", "b a"}} {
		if run, before := (record.Event{Metadata: map[string]string{record.MetadataSeqRuns: runs}}).Runs(); run != want[0] || before != want[1] {
			t.Errorf("runs %q: %q after %q", runs, run, before)
		}
	}
	if n, _ := (record.Event{Metadata: map[string]string{record.MetadataRepeats: "2"}}).Repeats(); n != 2 {
		t.Errorf("an event that stands for two stands for %d", n)
	}
	stored := record.Record{Event: event}
	if stored.Accepted = record.Content(stored); record.Content(record.Record{Accepted: "sum"}) != "sum" || stored.Accepted == "" {
		t.Errorf("content %q", stored.Accepted)
	}
}
