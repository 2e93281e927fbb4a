package decision_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// derive is what a rule makes of the same code on these nodes, minute by minute.
func derive(t *testing.T, text string, nodes ...string) record.Event {
	t.Helper()
	rules, err := rule.Parse("rules.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := window(rules)
	for i, node := range nodes {
		w.Add(ev{at: i, node: node, code: "79", gpu: "A"}.fact(i))
	}
	for _, f := range w.Evaluate(time.Time{}, start.Add(time.Hour)) {
		if f.Reason == decision.Matched {
			return f.Event(record.Process)
		}
	}
	t.Fatal("nothing is derived")
	return record.Event{}
}

const (
	threeNodes = "[[rules]]\nname = \"R\"\naction = \"NONE\"\nscope = \"cluster\"\nclear = \"sources\"\nwindow = \"2h\"\ndistinct = [\"node\"]\ncount = 3\n"
	oneNode    = "[[rules]]\nname = \"R\"\naction = \"NONE\"\nclear = \"sources\"\nwindow = \"2h\"\n"
)

// TestAFaultOfTheClusterHasOneID: whichever node triggers it, two replicas that
// see different nodes first publish one fault; of a rule of one node, two.
func TestAFaultOfTheClusterHasOneID(t *testing.T) {
	for _, tt := range []struct {
		text string
		a, b []string
		one  bool
	}{
		{threeNodes, []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n4"}, true},
		{oneNode, []string{"n1"}, []string{"n2"}, false},
	} {
		a, b := derive(t, tt.text, tt.a...), derive(t, tt.text, tt.b...)
		if a.NodeName == b.NodeName || (a.ID == b.ID) != tt.one {
			t.Errorf("%s of %s and %s of %s", a.ID, a.NodeName, b.ID, b.NodeName)
		}
	}
}

// TestDerivedFaultsAreInTheirOwnWindow: that of the cluster is not in its node's,
// which would look for the sources on other nodes, nor the other way round.
func TestDerivedFaultsAreInTheirOwnWindow(t *testing.T) {
	for text, nodes := range map[string][]string{threeNodes: {"n1", "n2", "n3"}, oneNode: {"n1"}} {
		e := derive(t, text, nodes...)
		for scope, w := range map[rule.Scope]*decision.Window{rule.OnNode: decision.NewWindow(nil), rule.OnCluster: decision.NewClusterWindow(nil)} {
			w.Add(decision.NewFact(record.Record{ID: e.ID, Event: e}))
			if own := (text == threeNodes) == (scope == rule.OnCluster); (w.Len() == 1) != own || (len(w.Unknown()) > 0) != own {
				t.Errorf("the window of a %s has %d of them, and misses %v", scope, w.Len(), w.Unknown())
			}
		}
	}
}

// TestTheRecoveryOfAClusterFaultIsBehindIt in the order of their outbox, even
// when all its sources ended before it.
func TestTheRecoveryOfAClusterFaultIsBehindIt(t *testing.T) {
	w := decision.NewClusterWindow(nil)
	e := derive(t, threeNodes, "n1", "n2", "n3")
	fault := record.Record{ID: e.ID, Event: e}
	fault.Seq, fault.SeqEpoch, _ = e.Seq()
	w.Add(decision.NewFact(fault))
	for _, id := range w.Unknown() {
		w.Expire(id)
	}
	over := w.Clearings()
	if len(over) != 1 {
		t.Fatalf("%d are over", len(over))
	}
	seq, epoch, ok := over[0].Event().Seq()
	if !ok || epoch != decision.ClusterEpoch || epoch != fault.SeqEpoch || seq <= fault.Seq {
		t.Errorf("recovery %d of %q, fault %d of %q", seq, epoch, fault.Seq, fault.SeqEpoch)
	}
}
