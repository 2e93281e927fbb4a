package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

func xid() record.Event {
	return record.Event{
		Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "gpu-7",
		IsFatal: true, Message: "fell off", RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"79"},
		EntitiesImpacted:   []record.Entity{{EntityType: "GPU", EntityValue: "3"}, {EntityType: "PCI", EntityValue: "0000:3b:00"}},
		ProcessingStrategy: record.Process, Metadata: map[string]string{"seq": "4", "seqEpoch": "e", "bootID": "b"},
	}
}

func rules(rules ...Rule) Config {
	c := Default()
	c.Stages, c.Overrides.Rules = []string{StageOverrides}, rules
	return c
}

func TestOverrides(t *testing.T) {
	harmless := Override{IsFatal: new(false), RecommendedAction: "NONE"}
	tests := map[string]struct {
		rules []Rule
		want  func(*record.Event)
		notes string
	}{
		"no rule": {},
		"by code": {
			[]Rule{{"r", `"79" in event.errorCode && event.agent == "syslog-health-monitor"`, harmless}},
			func(e *record.Event) { e.IsFatal, e.RecommendedAction = false, record.ActionNone }, "r:isFatal r:recommendedAction",
		},
		"by entity": {
			[]Rule{{"r", `event.entitiesImpacted.exists(x, x.entityType == "GPU" && x.entityValue == "3")`, harmless}},
			func(e *record.Event) { e.IsFatal, e.RecommendedAction = false, record.ActionNone }, "r:isFatal r:recommendedAction",
		},
		"by another entity": {[]Rule{{"r", `event.entitiesImpacted.exists(x, x.entityValue == "4")`, harmless}}, nil, ""},
		"by names of enums and metadata": {
			[]Rule{{"r", `event.recommendedAction == "RESTART_BM" && event.processingStrategy == "PROCESS" && event.metadata["bootID"] == "b"`, Override{IsHealthy: new(true)}}},
			func(e *record.Event) { e.IsHealthy = true }, "r:isHealthy",
		},
		"the first that matches": {
			[]Rule{
				{"no", `event.nodeName == "gpu-8"`, harmless},
				{"first", `event.isFatal`, Override{RecommendedAction: "REBOOT_NODE"}},
				{"second", `event.isFatal`, harmless},
			},
			func(e *record.Event) { e.RecommendedAction = record.ActionRestartVM }, "first:recommendedAction",
		},
		"a custom action and a strategy": {
			[]Rule{{"r", `true`, Override{RecommendedAction: "CUSTOM", CustomRecommendedAction: "SWAP", ProcessingStrategy: "PERSIST_ONLY"}}},
			func(e *record.Event) {
				e.RecommendedAction, e.CustomRecommendedAction, e.ProcessingStrategy = record.ActionCustom, "SWAP", record.PersistOnly
			}, "r:recommendedAction r:processingStrategy",
		},
		"one that fails does not match and does not stop the next": {
			[]Rule{{"bad", `event.metadata["missing"] == "x"`, harmless}, {"odd", `event.message`, harmless}, {"good", `true`, Override{IsFatal: new(false)}}},
			func(e *record.Event) { e.IsFatal = false }, "good:isFatal bad! odd!",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(rules(tc.rules...))
			if err != nil {
				t.Fatal(err)
			}
			want := xid()
			if tc.want != nil {
				tc.want(&want)
			}
			given := xid()
			got, notes := p.Apply(given, nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(xid(), given); diff != "" {
				t.Errorf("the event given was changed:\n%s", diff)
			}
			if s := notesText(notes); s != tc.notes {
				t.Errorf("notes %q, want %q", s, tc.notes)
			}
		})
	}
}

func notesText(n Notes) string {
	var out []string
	for _, a := range n.Applied {
		out = append(out, a.Rule+":"+a.Field)
	}
	for _, f := range n.Failed {
		out = append(out, f.Rule+"!")
	}
	return strings.Join(out, " ")
}

// TestARuleForOneCodeLeavesTheOthers: an event of several codes is changed by a
// rule only if that matches each of them.
func TestARuleForOneCodeLeavesTheOthers(t *testing.T) {
	for when, want := range map[string]bool{
		`"79" in event.errorCode`:                           false,
		`event.errorCode.exists(c, c == "79" || c == "48")`: true,
		`event.errorCode == ["79"]`:                         false,
		`event.agent == "syslog-health-monitor"`:            true,
	} {
		p, err := Compile(rules(Rule{"r", when, Override{IsFatal: new(false)}}))
		if err != nil {
			t.Fatal(err)
		}
		e := xid()
		e.ErrorCode = []string{"79", "48"}
		got, _ := p.Apply(e, nil)
		if got.IsFatal == want || len(got.ErrorCode) != 2 {
			t.Errorf("%s: fatal %v, codes %v", when, got.IsFatal, got.ErrorCode)
		}
		e.ErrorCode = []string{"79"}
		if got, _ := p.Apply(e, nil); got.IsFatal {
			t.Errorf("%s does not match one code", when)
		}
	}
}

// TestOnlyAFlagLetsARuleAct: without it such a rule is refused, so that no event for
// the record only is ever acted upon.
func TestOnlyAFlagLetsARuleAct(t *testing.T) {
	c := rules(Rule{"deaf", "event.agent == 'old'", Override{ProcessingStrategy: "PROCESS"}})
	if _, err := Compile(c); err == nil || !strings.Contains(err.Error(), "--allow-persist-only-to-process") {
		t.Errorf("without the flag: %v", err)
	}
	c.PersistOnlyToProcess = true
	p, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	for agent, want := range map[string]record.Strategy{"old": record.Process, "new": record.PersistOnly} {
		e := xid()
		e.Agent, e.ProcessingStrategy = agent, record.PersistOnly
		if got, _ := p.Apply(e, nil); got.ProcessingStrategy != want {
			t.Errorf("of agent %s: %s, want %s", agent, got.ProcessingStrategy, want)
		}
	}
}

func TestRulesThatAreSwitchedOff(t *testing.T) {
	c := rules(Rule{"r", "true", Override{IsFatal: new(false)}})
	c.Overrides.Enabled = false
	p, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := p.Apply(xid(), nil); !got.IsFatal {
		t.Error("a rule that is switched off was applied")
	}
}

func TestMetadata(t *testing.T) {
	c := Default()
	c.Stages, c.Metadata.AllowedLabels = []string{StageMetadata}, []string{"zone", "missing", "seq", "rack"}
	p, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	node := &Node{ProviderID: "aws:///i-1", Labels: map[string]string{"zone": "a", "seq": "999", "rack": "r1", "other": "x"}}
	e := xid()
	e.Metadata["rack"] = "as the publisher says"
	got, notes := p.Apply(e, node)
	want := map[string]string{"seq": "4", "seqEpoch": "e", "bootID": "b", "providerID": "aws:///i-1", "zone": "a", "rack": "r1"}
	if diff := cmp.Diff(want, got.Metadata); diff != "" || notes.Cut || notes.NodeUnknown {
		t.Errorf("%+v (-want +got):\n%s", notes, diff)
	}
	if got, notes := p.Apply(xid(), nil); !notes.NodeUnknown || len(got.Metadata) != 3 {
		t.Errorf("an unknown node: %v, %+v", got.Metadata, notes)
	}
	full := xid()
	for i := len(full.Metadata); i < admission.MaxMetadata; i++ {
		full.Metadata[fmt.Sprint("k", i)] = "v"
	}
	if got, notes := p.Apply(full, node); !notes.Cut || len(got.Metadata) != admission.MaxMetadata {
		t.Errorf("full metadata: %d entries, %+v", len(got.Metadata), notes)
	}
}

func TestStagesRunInTheirOrder(t *testing.T) {
	c := rules(Rule{"r", `has(event.metadata.zone) && event.metadata.zone == "a"`, Override{IsFatal: new(false)}})
	c.Metadata.AllowedLabels = []string{"zone"}
	node := &Node{Labels: map[string]string{"zone": "a"}}
	for _, tc := range []struct {
		stages []string
		fatal  bool
	}{
		{[]string{StageMetadata, StageOverrides}, false},
		{[]string{StageOverrides, StageMetadata}, true},
	} {
		c.Stages = tc.stages
		p, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := p.Apply(xid(), node); got.IsFatal != tc.fatal {
			t.Errorf("%v: fatal %v", tc.stages, got.IsFatal)
		}
	}
}

func TestCompileNamesProblems(t *testing.T) {
	stages := func(names ...string) Config {
		c := Default()
		c.Stages = names
		return c
	}
	tests := map[string]struct {
		config Config
		want   string
	}{
		"an unknown stage":            {stages("Magic"), `stage "Magic" is not MetadataAugmentor, OverrideTransformer or Confirmation`},
		"overrides behind what waits": {stages(StageConfirmation, StageOverrides), "stage OverrideTransformer must come before Confirmation"},
		"a stage twice":               {stages(StageMetadata, StageMetadata), "stage MetadataAugmentor is a duplicate"},
		"no cache":                    {func() Config { c := stages(StageMetadata); c.Metadata.CacheSize = 0; return c }(), "MetadataAugmentor: cacheSize 0"},
		"a rule without name":         {rules(Rule{When: "true", Override: Override{IsFatal: new(true)}}), `OverrideTransformer: rules[0] (""): name is empty`},
		"a rule for nothing":          {rules(Rule{Name: "r", When: "true"}), `rules[0] ("r"): override changes nothing`},
		"an unknown action":           {rules(Rule{"r", "true", Override{RecommendedAction: "HAMMER"}}), `override.recommendedAction: recommended action "HAMMER"`},
		"CUSTOM without name":         {rules(Rule{"r", "true", Override{RecommendedAction: "CUSTOM"}}), "override.customRecommendedAction requires"},
		"a name and no CUSTOM":        {rules(Rule{"r", "true", Override{CustomRecommendedAction: "X"}}), "override.customRecommendedAction requires"},
		"an unknown strategy":         {rules(Rule{"r", "true", Override{ProcessingStrategy: "STORE_ONLY"}}), `override.processingStrategy: processing strategy "STORE_ONLY"`},
		"an act unasked for":          {rules(Rule{"r", "true", Override{ProcessingStrategy: "PROCESS"}}), `rules[0] ("r"): override.processingStrategy = PROCESS would act on events`},
		"no expression":               {rules(Rule{"r", "", Override{IsFatal: new(true)}}), `rules[0] ("r").when: ERROR`},
		"a broken expression":         {rules(Rule{"r", "event.", Override{IsFatal: new(true)}}), `rules[0] ("r").when: ERROR: <input>:1:7`},
		"a number":                    {rules(Rule{"r", "1 + 1", Override{IsFatal: new(true)}}), `rules[0] ("r").when: the result type is int, must be bool`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
