package ruling_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
)

// TestRulesOnTextAreWarnedOf: each rule of an enabled set that reads the event's
// message, and no built-in one.
func TestRulesOnTextAreWarnedOf(t *testing.T) {
	text := ruling.Rule{Kind: "HealthEvent", Expression: `event.message.contains("fallen off the bus")`}
	code := ruling.Rule{Kind: "HealthEvent", Expression: `"79" in event.errorCode`}
	sets := []ruling.Set{
		{Enabled: true, Name: "a", Match: ruling.Match{All: []ruling.Rule{code, text}, Any: []ruling.Rule{text}}},
		{Enabled: false, Name: "b", Match: ruling.Match{All: []ruling.Rule{text}}},
		{Enabled: true, Name: "c", Match: ruling.Match{Any: []ruling.Rule{code}}},
	}
	want := []string{
		`ruleSets[0] ("a").match.all[1].expression ` + record.MessageWarning,
		`ruleSets[0] ("a").match.any[0].expression ` + record.MessageWarning,
	}
	if diff := cmp.Diff(want, ruling.Warnings(sets)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got := ruling.Warnings(ruling.Default()); got != nil {
		t.Errorf("of the built-in sets: %q", got)
	}
}
