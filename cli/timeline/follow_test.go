package timeline

import (
	"strings"
	"testing"
)

// TestFollowReportsNewSteps: of two timelines only the changes are printed, each once.
func TestFollowReportsNewSteps(t *testing.T) {
	group := Group{Text: "Xid 79", Strategy: "PROCESS", Reason: "Held", Count: 2, First: minute(1), Last: minute(2), Record: "r"}
	with := func(edit func(*Group)) Timeline {
		g := group
		edit(&g)
		return Timeline{Others: []Group{g}}
	}
	pause := PauseState{Read: true, On: true}
	for _, tt := range []struct {
		name        string
		before, now Timeline
		want        string // a part of it; empty is nothing
	}{
		{"nothing has changed", with(func(*Group) {}), with(func(*Group) {}), ""},
		{"there was another kind before it", Timeline{Others: []Group{{Text: "Xid 13"}, group}}, with(func(*Group) {}), ""},
		{"it is followed by another kind", Timeline{Others: []Group{group, {Text: "Xid 13"}}}, with(func(*Group) {}), ""},
		{"one more of a kind", with(func(*Group) {}), with(func(g *Group) { g.Count++ }), "3 times"},
		{"another kind", with(func(*Group) {}), with(func(g *Group) { g.Text = "Xid 48" }), "Xid 48"},
		{"another strategy", with(func(*Group) {}), with(func(g *Group) { g.Strategy = "PERSIST_ONLY" }), "PERSIST_ONLY"},
		{"another verdict", with(func(*Group) {}), with(func(g *Group) { g.Reason = "NoRuleMatched" }), "NoRuleMatched"},
		{"another phase", Timeline{Standing: Standing{Phase: Held, Reason: "x"}}, Timeline{Standing: Standing{Phase: Draining, Reason: "x"}}, "draining: x"},
		{"another reason", Timeline{Standing: Standing{Phase: Held, Reason: "x"}}, Timeline{Standing: Standing{Phase: Held, Reason: "y"}}, "held: y"},
		{"the brake is on", Timeline{Pause: PauseState{Read: true}}, Timeline{Pause: pause}, "emergency stop ON"},
		{"the brake is off again", Timeline{Pause: pause}, Timeline{Pause: PauseState{Read: true}}, "emergency stop OFF"},
	} {
		var b strings.Builder
		if err := tt.now.WriteChanges(&b, tt.before, Style{}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestUnreadableSourceKeepsReportedSteps: what an unreadable source showed before is
// kept, so that it is not reported again when the source is read; a Node that is
// certainly absent is reported when it is back.
func TestUnreadableSourceKeepsReportedSteps(t *testing.T) {
	before := Timeline{Others: []Group{{Text: "before"}}, Sighting: &Node{Name: "before"}}
	now := &Node{Name: "now"}
	for _, tt := range []struct {
		name           string
		store, cluster bool
		node           *Node
		group, want    string
	}{
		{"both were read", true, true, now, "now", "now"},
		{"the store was not", false, true, now, "before", "now"},
		{"the API server was not", true, false, nil, "now", "before"},
		{"the Node is deleted", true, true, nil, "now", ""},
		{"the Node was read, and the rest was not", true, false, now, "now", "now"},
	} {
		s := Timeline{Sources: []Source{{Read: tt.store}, {Read: tt.cluster}}, Others: []Group{{Text: "now"}}, Sighting: tt.node}.MergeReported(before)
		node := ""
		if s.Sighting != nil {
			node = s.Sighting.Name
		}
		if s.Others[0].Text != tt.group || node != tt.want {
			t.Errorf("%s: the records of %s and the Node of %q are told, want %s and %q", tt.name, s.Others[0].Text, node, tt.group, tt.want)
		}
	}
}

// TestSame: a survey is reported again when something has changed, not because time passes
// or a consumer is a little behind.
func TestSame(t *testing.T) {
	survey := func(edit func(*Fleet)) Fleet {
		f := Fleet{At: minute(1), Total: 3, DryRun: &DryRunSummary{Now: true, At: minute(1), Faults: 2}, Consumers: []Consumer{{Name: "c", Known: true}}}
		edit(&f)
		return f
	}
	for _, tt := range []struct {
		name string
		edit func(*Fleet)
		same bool
	}{
		{"nothing", func(*Fleet) {}, true},
		{"the time", func(f *Fleet) { f.At = minute(2) }, true},
		{"the time of a dry verdict", func(f *Fleet) { f.DryRun.At = minute(2) }, true},
		{"a consumer's lag", func(f *Fleet) { f.Consumers[0].Waiting, f.Consumers[0].CommittedAt = 3, minute(9) }, true},
		{"a consumer's problem", func(f *Fleet) { f.Consumers[0].Problem = "away" }, false},
		{"the faults of a dry run", func(f *Fleet) { f.DryRun.Faults = 3 }, false},
		{"the end of a dry run", func(f *Fleet) { f.DryRun = nil }, false},
		{"a node more", func(f *Fleet) { f.Total = 4 }, false},
	} {
		if same := survey(func(*Fleet) {}).Same(survey(tt.edit)); same != tt.same {
			t.Errorf("%s makes it the same: %v", tt.name, same)
		}
	}
}
