package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestRulesOnTextAreWarnedOf: of those that make more of an event than its publisher,
// or end a fault; one that makes less of it acts on nothing.
func TestRulesOnTextAreWarnedOf(t *testing.T) {
	yes, no := true, false
	const text = `event.message.contains("x")`
	c := Default()
	c.Stages, c.PersistOnlyToProcess = []string{StageOverrides, StageConfirmation}, true
	c.Overrides.Rules = []Rule{
		{Name: "fatal", When: text, Override: Override{IsFatal: &yes}},
		{Name: "healthy", When: text, Override: Override{IsHealthy: &yes}},
		{Name: "action", When: text, Override: Override{RecommendedAction: "RESTART_BM"}},
		{Name: "acted upon", When: text, Override: Override{ProcessingStrategy: "PROCESS"}},
		{Name: "not fatal", When: text, Override: Override{IsFatal: &no}},
		{Name: "record only", When: text, Override: Override{ProcessingStrategy: "PERSIST_ONLY"}},
		{Name: "no action", When: text, Override: Override{RecommendedAction: "NONE"}},
		{Name: "by code", When: `"79" in event.errorCode`, Override: Override{IsFatal: &yes}},
	}
	c.Confirmation.Rules = []ConfirmRule{
		{Name: "second", When: `event.isFatal`, Second: text, Within: 60e9},
		{Name: "waits", When: text, Reports: 2, Within: 60e9},
	}
	p, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, at := range []string{
		`OverrideTransformer: rules[0] ("fatal").when `, `OverrideTransformer: rules[1] ("healthy").when `, `OverrideTransformer: rules[2] ("action").when `,
		`OverrideTransformer: rules[3] ("acted upon").when `, `Confirmation: rules[0] ("second").second `,
	} {
		want = append(want, at+record.MessageWarning)
	}
	if diff := cmp.Diff(want, p.Warnings()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
