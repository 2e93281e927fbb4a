package rulematch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

func set(name string, priority int, expression string) rulematch.Set {
	return rulematch.Set{
		Enabled: true, Name: name, Priority: priority, Cordon: rulematch.Cordon{ShouldCordon: true},
		Match: rulematch.Match{All: []rulematch.Rule{{Kind: "HealthEvent", Expression: expression}}},
	}
}

func decide(t *testing.T, e record.Event, node map[string]any, sets ...rulematch.Set) rulematch.Ruling {
	t.Helper()
	rules, err := rulematch.Compile(sets)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Decide(e, node)
}

var xid79 = record.Event{
	Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true, ErrorCode: []string{"79"},
	RecommendedAction: record.ActionRestartBM, ProcessingStrategy: record.Process, NodeName: "n1", Metadata: map[string]string{"a": "b"},
	EntitiesImpacted: []record.Entity{{EntityType: "GPU", EntityValue: "3"}},
}

func TestExpressions(t *testing.T) {
	node := map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": "train"}}}
	for expression, want := range map[string]bool{
		`event.isFatal && event.agent == "syslog-health-monitor"`:                         true,
		`"79" in event.errorCode`:                                                         true,
		`event.recommendedAction == 24`:                                                   true,
		`event.recommendedActionName == "RESTART_BM"`:                                     true,
		`event.processingStrategy == 0`:                                                   true,
		`event.entitiesImpacted.exists(e, e.entityType == "GPU" && e.entityValue == "3")`: true,
		`event.metadata["a"] == "b"`:                                                      true,
		`event.metadata["missing"] == "b"`:                                                false,
		`node.metadata.labels["pool"] == "train"`:                                         true,
		`node.metadata.labels["absent"] == "train"`:                                       false,
		`event.quarantineOverrides == null`:                                               true,
		`event.generatedTimestamp < timestamp("2026-01-01T00:00:00Z")`:                    true,
		`event.metadata.a == "b" && size(event.errorCode) == 1`:                           true,
		`event.agent.startsWith("sys") && !event.isHealthy`:                               true,
	} {
		if got := decide(t, xid79, node, set("s", 0, expression)).Matched(); got != want {
			t.Errorf("%s: got %v, want %v", expression, got, want)
		}
	}
}

func TestAllAndAny(t *testing.T) {
	yes, no := rulematch.Rule{Kind: "HealthEvent", Expression: "true"}, rulematch.Rule{Kind: "Node", Expression: "false"}
	tests := map[string]struct {
		match rulematch.Match
		want  bool
	}{
		"all hold":         {rulematch.Match{All: []rulematch.Rule{yes, yes}}, true},
		"one of all fails": {rulematch.Match{All: []rulematch.Rule{yes, no}}, false},
		"any holds":        {rulematch.Match{Any: []rulematch.Rule{no, yes}}, true},
		"none of any":      {rulematch.Match{Any: []rulematch.Rule{no, no}}, false},
		"either group":     {rulematch.Match{All: []rulematch.Rule{no}, Any: []rulematch.Rule{yes}}, true},
	}
	for name, tt := range tests {
		s := set("s", 0, "true")
		s.Match = tt.match
		if got := decide(t, xid79, nil, s).Matched(); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestMerge(t *testing.T) {
	with := func(name string, priority int, taint record.Taint, label string, cordon bool) rulematch.Set {
		s := set(name, priority, "true")
		s.Taint, s.Label, s.Cordon.ShouldCordon = &taint, &record.Label{Key: "l", Value: label}, cordon
		return s
	}
	weak, strong := record.Taint{Key: "k", Value: "v", Effect: "PreferNoSchedule"}, record.Taint{Key: "k", Value: "v", Effect: "NoExecute"}
	other := record.Taint{Key: "k", Value: "w", Effect: "NoSchedule"}
	disabled := with("off", 99, other, "off", true)
	disabled.Enabled = false
	got := decide(t, xid79, nil, with("low", 1, weak, "low", true), with("high", 2, strong, "high", false), with("tie", 2, other, "tie", false), disabled)
	want := rulematch.Ruling{
		Names:   []string{"high", "tie", "low"},
		Effects: record.Effects{Cordon: true, Taints: []record.Taint{strong, other}, Labels: []record.Label{{Key: "l", Value: "high"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadRulesAreNamed(t *testing.T) {
	empty := set("empty", 0, "true")
	empty.Match = rulematch.Match{}
	nothing := set("nothing", 0, "true")
	nothing.Cordon.ShouldCordon = false
	kind := set("kind", 0, "true")
	kind.Match.All[0].Kind = "Pod"
	taint := set("taint", 0, "true")
	taint.Taint = &record.Taint{Key: "k", Effect: "Never"}
	for want, sets := range map[string][]rulematch.Set{
		`("a").match.all[0].expression`:       {set("a", 0, "event.")},
		`result type is int, must be bool`:    {set("a", 0, "event.recommendedAction")},
		`undefined field 'isfatal'`:           {set("a", 0, `event.agent == "x" && event.isfatal`)},
		`fields of an event: version, agent,`: {set("a", 0, `event.isfatal`)},
		`undefined field 'kind'`:              {set("a", 0, `event.entitiesImpacted.exists(e, e.kind == "GPU")`)},
		`no matching overload for '_==_'`:     {set("a", 0, `event.isFatal == "true"`)},
		`taint.key "not a key!"`:              {marked(record.Taint{Key: "not a key!", Effect: "NoSchedule"}, record.Label{Key: "l"})},
		`taint.value "a b"`:                   {marked(record.Taint{Key: "k", Value: "a b", Effect: "NoSchedule"}, record.Label{Key: "l"})},
		`label.key "a b"`:                     {marked(record.Taint{Key: "k", Effect: "NoSchedule"}, record.Label{Key: "a b"})},
		`label.value "c d"`:                   {marked(record.Taint{Key: "k", Effect: "NoSchedule"}, record.Label{Key: "l", Value: "c d"})},
		`undeclared reference to 'pod'`:       {set("a", 0, "pod.x")},
		`name is a duplicate`:                 {set("a", 0, "true"), set("a", 0, "true")},
		`has no rules: set all or any`:        {empty},
		`has no effect`:                       {nothing},
		`kind "Pod" is not HealthEvent`:       {kind},
		`taint.effect "Never" is not`:         {taint},
	} {
		_, err := rulematch.Compile(sets)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func marked(taint record.Taint, label record.Label) rulematch.Set {
	s := set("marked", 0, "true")
	s.Taint, s.Label = &taint, &label
	return s
}

// TestAFailureIsNoAnswer: what cannot be evaluated may have matched; a key that a
// map does not have is an answer.
func TestAFailureIsNoAnswer(t *testing.T) {
	node := map[string]any{"metadata": map[string]any{"labels": map[string]any{"slots": "8"}}}
	for expression, undecided := range map[string]bool{
		`node.metadata.labels["absent"] == "x"`: false,
		`node.metadata.labels["slots"] > 4`:     true,
		`int(event.metadata["a"]) > 4`:          true,
	} {
		if got := decide(t, xid79, node, set("s", 0, expression)); got.Undecided() != undecided || got.Matched() {
			t.Errorf("%s: undecided %v, %v", expression, got.Undecided(), got.Errors)
		}
	}
	if got := decide(t, xid79, node, set("s", 0, `int(event.metadata["a"]) > 4`), set("t", 0, "event.isFatal")); !got.Matched() || got.Undecided() {
		t.Errorf("another set matches: %+v", got)
	}
}

func TestDefaultRulesMatchTheMainJob(t *testing.T) {
	got := decide(t, xid79, nil, rulematch.Default()...)
	if !got.Matched() || !got.Effects.Cordon || len(got.Errors) > 0 {
		t.Errorf("XID 79 is not quarantined by the default rules: %+v", got)
	}
	harmless := xid79
	harmless.IsFatal = false
	if decide(t, harmless, nil, rulematch.Default()...).Matched() {
		t.Error("a non-fatal event is quarantined by the default rules")
	}
}
