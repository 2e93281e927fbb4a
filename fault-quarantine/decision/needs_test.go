package decision_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
)

// TestSuffices: a cached Node is enough only where there is nothing that it could be
// behind with.
func TestSuffices(t *testing.T) {
	machine := record.NodeIdentity{UID: "u", ProviderID: "p", SystemUUID: "s", BootID: "b"}
	r := record.Record{ID: "f", Node: machine}
	for name, tt := range map[string]struct {
		change        func(*decision.Node)
		pending, open []record.Record
		want          bool
	}{
		"a node without marks":      {func(*decision.Node) {}, []record.Record{r, r}, nil, true},
		"an open fault":             {func(*decision.Node) {}, []record.Record{r}, []record.Record{r}, false},
		"in session":                {func(n *decision.Node) { n.Session = "s" }, []record.Record{r}, nil, false},
		"a lemon that is kept":      {func(n *decision.Node) { n.Kept = true }, []record.Record{r}, nil, false},
		"released by a person":      {func(n *decision.Node) { n.LetGo = true }, []record.Record{r}, nil, false},
		"opted out":                 {func(n *decision.Node) { n.OptedOut = true }, []record.Record{r}, nil, false},
		"lists a fault":             {func(n *decision.Node) { n.Active = []record.Record{r} }, []record.Record{r}, nil, false},
		"lists an unknown one":      {func(n *decision.Node) { n.Doubted = []string{"f"} }, []record.Record{r}, nil, false},
		"lists one that has ended":  {func(n *decision.Node) { n.Ended = []string{"f"} }, []record.Record{r}, nil, false},
		"another boot":              {func(n *decision.Node) { n.Identity.BootID = "c" }, []record.Record{r}, nil, false},
		"another machine":           {func(n *decision.Node) { n.Identity.ProviderID = "q" }, []record.Record{r}, nil, false},
		"another object":            {func(n *decision.Node) { n.Identity.UID = "v" }, []record.Record{r}, nil, false},
		"one report of nobody else": {func(*decision.Node) {}, []record.Record{r, {ID: "g"}}, nil, false},
	} {
		n := decision.Node{Identity: machine}
		tt.change(&n)
		if got := n.Suffices(tt.pending, tt.open); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
