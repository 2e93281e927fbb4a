package rulematch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// TestRulesOnTextAreWarnedOf: each rule of an enabled set that reads the event's
// message, and no built-in one.
func TestRulesOnTextAreWarnedOf(t *testing.T) {
	text := rulematch.Rule{Kind: "HealthEvent", Expression: `event.message.contains("fallen off the bus")`}
	code := rulematch.Rule{Kind: "HealthEvent", Expression: `"79" in event.errorCode`}
	sets := []rulematch.Set{
		{Enabled: true, Name: "a", Match: rulematch.Match{All: []rulematch.Rule{code, text}, Any: []rulematch.Rule{text}}},
		{Enabled: false, Name: "b", Match: rulematch.Match{All: []rulematch.Rule{text}}},
		{Enabled: true, Name: "c", Match: rulematch.Match{Any: []rulematch.Rule{code}}},
	}
	want := []string{
		`ruleSets[0] ("a").match.all[1].expression ` + record.MessageWarning,
		`ruleSets[0] ("a").match.any[0].expression ` + record.MessageWarning,
	}
	if diff := cmp.Diff(want, rulematch.Warnings(sets)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got := rulematch.Warnings(rulematch.Default()); got != nil {
		t.Errorf("of the built-in sets: %q", got)
	}
}
