package decision_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// linkRule is asked about link faults, and counts power faults.
const linkRule = `
[[rules]]
name = "R"
action = "NONE"
scope = "cluster"
clear = "manual"
window = "1h"
[rules.when]
agents = ["a"]
componentClasses = ["NIC"]
checks = ["LinkCheck"]
[rules.of]
checks = ["PowerCheck"]
`

// anyRule is asked about every fault.
const anyRule = "[[rules]]\nname = \"R\"\naction = \"NONE\"\nscope = \"cluster\"\nclear = \"manual\"\nwindow = \"1h\"\n"

func parsed(t *testing.T, text string) []rule.Rule {
	t.Helper()
	rules, err := rule.Parse("rules.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// testEvent is an event of an agent's check on a node, "<agent> <class> <check> <node>".
type testEvent struct {
	agent, class, check, node string
	healthy                   bool
}

func (t testEvent) fact(id string, at int) *decision.Fact {
	return decision.NewFact(record.Record{ID: id, Append: int64(at + 1), Event: record.Event{
		ID: id, Agent: t.agent, ComponentClass: t.class, CheckName: t.check, NodeName: t.node, IsHealthy: t.healthy,
		GeneratedTimestamp: start.Add(time.Duration(at) * time.Minute), ProcessingStrategy: record.Process,
	}})
}

// TestClusterEvents: the events of all nodes are too many to keep them
// all, so the window takes those that a rule looks at, and those that end them.
func TestClusterEvents(t *testing.T) {
	const own = record.AnalyzerAgent
	for _, tt := range []struct {
		name, rules string
		known       []testEvent // in the window before
		event       testEvent
		want        bool
	}{
		{"a fault that the rule is asked about", linkRule, nil, testEvent{"a", "NIC", "LinkCheck", "n", false}, true},
		{"a fault that it counts", linkRule, nil, testEvent{"b", "GPU", "PowerCheck", "n", false}, true},
		{"a fault of another agent", linkRule, nil, testEvent{"b", "NIC", "LinkCheck", "n", false}, false},
		{"a fault of another class", linkRule, nil, testEvent{"a", "GPU", "LinkCheck", "n", false}, false},
		{"a fault of another check", linkRule, nil, testEvent{"a", "NIC", "FanCheck", "n", false}, false},
		{"a recovery of what the rule is asked about", linkRule, nil, testEvent{"a", "NIC", "LinkCheck", "n", true}, true},
		{"a recovery of what it counts", linkRule, nil, testEvent{"b", "GPU", "PowerCheck", "n", true}, true},
		{"a recovery of another agent", linkRule, nil, testEvent{"b", "NIC", "LinkCheck", "n", true}, false},
		{"a recovery of another class", linkRule, nil, testEvent{"a", "GPU", "LinkCheck", "n", true}, false},
		{"a recovery of another check", linkRule, nil, testEvent{"a", "NIC", "FanCheck", "n", true}, false},
		{"a recovery of our own, and no fault of it", anyRule, nil, testEvent{own, "GPU", "R", "n", true}, false},
		{"a recovery of a monitor", anyRule, nil, testEvent{"a", "GPU", "R", "n", true}, true},
		{"a recovery of a fault in the window", linkRule, []testEvent{{"c", "CPU", "FanCheck", "n", false}}, testEvent{"c", "CPU", "FanCheck", "n", true}, true},
		{"a recovery of the same on another node", linkRule, []testEvent{{"c", "CPU", "FanCheck", "m", false}}, testEvent{"c", "CPU", "FanCheck", "n", true}, false},
		{"a recovery of another check of the node", linkRule, []testEvent{{"c", "CPU", "CoreCheck", "n", false}}, testEvent{"c", "CPU", "FanCheck", "n", true}, false},
		{"a recovery by another agent", linkRule, []testEvent{{"d", "CPU", "FanCheck", "n", false}}, testEvent{"c", "CPU", "FanCheck", "n", true}, false},
		{"a recovery after a recovery", linkRule, []testEvent{{"c", "CPU", "FanCheck", "n", true}}, testEvent{"c", "CPU", "FanCheck", "n", true}, false},
	} {
		w := decision.NewClusterWindow(parsed(t, tt.rules))
		for i, n := range tt.known {
			w.Add(n.fact("known", i))
		}
		f := tt.event.fact("new", 10)
		if got := w.Concerns(f); got != tt.want {
			t.Errorf("%s concerns the window: %v", tt.name, got)
		}
		if touches := tt.want && !tt.event.healthy; decision.Touches(parsed(t, tt.rules), f) != touches {
			t.Errorf("%s is one for the rules: %v", tt.name, !touches)
		}
		if !decision.NewWindow(nil).Concerns(f) {
			t.Errorf("%s does not concern its node", tt.name)
		}
	}
}

// TestChangesOfStoredEvents: a change of a stored event concerns the window, whichever
// rules are active now: the event may be the source of a fault whose rule is gone.
func TestChangesOfStoredEvents(t *testing.T) {
	w := decision.NewClusterWindow(parsed(t, linkRule))
	source := testEvent{"c", "CPU", "FanCheck", "n", false}
	w.Add(source.fact("source", 0))
	if !w.Concerns(source.fact("source", 0)) || w.Concerns(source.fact("another", 0)) {
		t.Error("of two faults that no rule looks at, not just the one in the window concerns it")
	}
}

// TestAwaitsSources: a node is looked after while it bears a fault of the cluster
// that ends with its sources, also when its rule is gone.
func TestAwaitsSources(t *testing.T) {
	sources := derive(t, threeNodes, "n1", "n2", "n3")
	byHand := derive(t, anyRule, "n3")
	ofNode := derive(t, oneNode, "n3")
	fault := func(id string, e record.Event) record.Record { return record.Record{ID: id, Event: e} }
	recovery := func(id string) record.Record {
		f := decision.NewFact(fault(id, sources))
		return record.Record{ID: "recovery of " + id, Event: decision.Clearing{Fault: f, At: f.At}.Event()}
	}
	for _, tt := range []struct {
		name    string
		derived []record.Record
		want    bool
	}{
		{"nothing", nil, false},
		{"a fault", []record.Record{fault("f", sources)}, true},
		{"a fault and its recovery", []record.Record{fault("f", sources), recovery("f")}, false},
		{"a fault and the recovery of another", []record.Record{fault("f", sources), fault("g", sources), recovery("g")}, true},
		{"a recovery whose fault has expired", []record.Record{recovery("f")}, false},
		{"a fault that a person ends", []record.Record{fault("f", byHand)}, false},
		{"a fault of the node's own", []record.Record{fault("f", ofNode)}, false},
	} {
		if got := decision.AwaitsSources(tt.derived); got != tt.want {
			t.Errorf("%s awaits sources: %v", tt.name, got)
		}
	}
}
