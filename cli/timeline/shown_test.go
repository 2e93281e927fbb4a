package timeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// listed are n of something, made by their number.
func listed[T any](n int, one func(string) T) (out []T) {
	for i := range n {
		out = append(out, one(fmt.Sprint("x", i)))
	}
	return out
}

// TestOmittedRowsAreCounted: as many rows as fit are shown, and the others are counted.
func TestOmittedRowsAreCounted(t *testing.T) {
	sources := []Source{{Read: true}, {Read: true}}
	status := func(f Fleet) func(Style) string {
		f.Sources = sources
		return func(style Style) string {
			var b strings.Builder
			if err := f.Write(&b, style); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
	}
	why := func(s Timeline) func(Style) string {
		s.Sources = sources
		return func(style Style) string {
			var b strings.Builder
			if err := s.Write(&b, style); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
	}
	for _, tt := range []struct {
		name string
		most int
		more string // with the number that is left out
		all  bool   // --all shows them
		of   func(n int) func(Style) string
	}{
		{"nodes of a NodeHealthCheck", shownPatients, "    and %d more nodes\n", false, func(n int) func(Style) string {
			return status(Fleet{Checks: []Check{{Phase: "Remediating", Patients: listed(n, func(id string) MonitoredNode { return MonitoredNode{Node: id} })}}})
		}},
		{"nodes that a dry run left alone", maxDryRunNodes, " and %d more\n", false, func(n int) func(Style) string {
			return status(Fleet{DryRun: &DryRunSummary{Nodes: listed(n, func(id string) string { return id })}})
		}},
		{"nodes without a publisher", uncoveredNodes, " and %d more\n", false, func(n int) func(Style) string {
			return status(Fleet{Uncovered: listed(n, func(id string) Uncovered { return Uncovered{Node: id} })})
		}},
		{"nodes beyond their quota", countedNodes, " and %d more, see", false, func(n int) func(Style) string {
			return status(Fleet{Counted: listed(n, func(id string) Counted { return Counted{Node: id} })})
		}},
		{"nodes whose events wait", undeliveredNodes, " and %d more\n", false, func(n int) func(Style) string {
			return status(Fleet{Undelivered: listed(n, func(id string) Undelivered { return Undelivered{Node: id} })})
		}},
		{"records that cannot be decoded", undecodableRecords, " and %d more, see", false, func(n int) func(Style) string {
			return status(Fleet{Undecodable: listed(n, func(id string) string { return id })})
		}},
		{"stays in quarantine", shownStays, "\n%d earlier quarantine sessions, use --all to show them.\n", true, func(n int) func(Style) string {
			return why(Timeline{Stays: listed(n, func(id string) Stay { return Stay{Session: id} })})
		}},
		{"faults of a stay", shownFaults, "  and %d more faults, use --all to show them\n", true, func(n int) func(Style) string {
			chain := func(id string) Chain { return Chain{Steps: []Step{{Kind: Line, Text: id}}} }
			return why(Timeline{Stays: []Stay{{Chains: listed(n, chain)}}})
		}},
		{"kinds of other records", shownGroups, "  and %d more kinds, use --all to show them\n", true, func(n int) func(Style) string {
			return why(Timeline{Others: listed(n, func(id string) Group { return Group{Text: id} })})
		}},
		{"things of an event", 4, " and %d more", false, func(n int) func(Style) string {
			e := record.Event{EntitiesImpacted: listed(n, func(id string) record.Entity { return record.Entity{EntityType: "GPU", EntityValue: id} })}
			return func(Style) string { return gist(e) }
		}},
	} {
		for _, n := range []int{tt.most, tt.most + 1, tt.most + 12} {
			text := tt.of(n)(Style{})
			left := fmt.Sprintf(tt.more, n-tt.most)
			if shown := strings.Contains(text, fmt.Sprint("x", tt.most-1)) && !strings.Contains(text, fmt.Sprint("x", tt.most)); !shown {
				t.Errorf("%d %s: not the first %d are shown in\n%s", n, tt.name, tt.most, text)
			}
			if reported := strings.Contains(text, left); reported != (n > tt.most) || n == tt.most && strings.Contains(text, " more") {
				t.Errorf("%d %s: %q is told: %v in\n%s", n, tt.name, left, reported, text)
			}
			if all := tt.of(n)(Style{All: true}); tt.all && !strings.Contains(all, fmt.Sprint("x", n-1)) {
				t.Errorf("%d %s: --all does not show the last one in\n%s", n, tt.name, all)
			}
		}
	}
}

// TestPendingPhasesAlert: a group of records on which something is to be done yet, or
// never is, stands out.
func TestPendingPhasesAlert(t *testing.T) {
	for _, tt := range []struct {
		strategy record.Strategy
		reason   string
		alert    bool
	}{
		{record.Process, string(record.Held), true}, {record.Process, pendingEvaluation, true}, {record.Process, string(record.NoRuleMatched), false},
		{record.PersistOnly, "stored only", true},
	} {
		style := Style{Paint: func(m Mood, text string) string { return "<" + string(m) + ">" + text }}
		p := style.page()
		p.groups([]Group{{Strategy: string(tt.strategy), Reason: tt.reason}}, midnight)
		if alert := strings.Contains(p.out.String(), "<alert>"); alert != tt.alert {
			t.Errorf("%s of %s alerts: %v", tt.reason, tt.strategy, alert)
		}
	}
}
