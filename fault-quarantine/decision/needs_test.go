package decision_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
		"a lemon that is kept":      {func(n *decision.Node) { n.RequiresRelease = true }, []record.Record{r}, nil, false},
		"released by a person":      {func(n *decision.Node) { n.LetGo = true }, []record.Record{r}, nil, false},
		"opted out":                 {func(n *decision.Node) { n.OptedOut = true }, []record.Record{r}, nil, false},
		"lists a fault":             {func(n *decision.Node) { n.Active = []record.Record{r} }, []record.Record{r}, nil, false},
		"lists an unknown one":      {func(n *decision.Node) { n.Unconfirmed = []string{"f"} }, []record.Record{r}, nil, false},
		"lists one that has ended":  {func(n *decision.Node) { n.Ended = []string{"f"} }, []record.Record{r}, nil, false},
		"active and ended ones":     {func(n *decision.Node) { n.Active, n.Ended = []record.Record{r}, []string{"g"} }, []record.Record{r}, nil, false},
		"active and unknown ones":   {func(n *decision.Node) { n.Active, n.Unconfirmed = []record.Record{r}, []string{"g"} }, []record.Record{r}, nil, false},
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

// TestNeeds: what is read of a node follows from its records and its Node alone.
func TestNeeds(t *testing.T) {
	machine := record.NodeIdentity{UID: "u", BootID: "now"}
	event := record.Event{RecommendedAction: record.ActionRestartBM, ProcessingStrategy: record.Process}
	of := func(boot string) record.Event {
		e := event
		e.Metadata = map[string]string{record.MetadataBootID: boot}
		return e
	}
	fresh := record.Record{ID: "f", Node: machine, Event: of("now")}
	old := record.Record{ID: "o", Node: machine, Event: of("before")}
	held := old
	held.Status.QuarantineVerdict = &record.Verdict{Reason: record.Held}
	recovery := record.Record{ID: "r", Node: machine, Event: record.Event{IsHealthy: true}}
	open := record.Record{ID: "s", Status: record.Status{Session: "s"}}
	plain := &decision.Node{Identity: machine}
	inSession := &decision.Node{Identity: machine, Session: "s", Active: []record.Record{{ID: "s"}, {ID: "x"}}}
	records := func(r ...record.Record) []record.Record { return r }
	pending := func(n *decision.Node, r record.Record) decision.View {
		return decision.View{Node: n, Pending: records(r)}
	}
	unlisted := records(record.Record{ID: "x"})
	for name, tt := range map[string]struct {
		view   decision.View
		cached *decision.Node
		marked bool
		want   decision.Reads
	}{
		"no records, no marks": {want: decision.Reads{Node: decision.Nowhere}},
		"marks alone":          {marked: true, want: decision.Reads{Node: decision.Server}},
		"a fault, no cache": {
			view: pending(nil, fresh), want: decision.Reads{Node: decision.Server, Fresh: records(fresh)},
		},
		"a fault, and the cache has the machine": {
			view: pending(nil, fresh), cached: plain, want: decision.Reads{Node: decision.Cache, Fresh: records(fresh)},
		},
		"an open fault, whatever the cache has": {
			view: decision.View{Open: records(open)}, cached: plain, want: decision.Reads{Node: decision.Server},
		},
		"a fault beside an open one, and no cache": {
			view: decision.View{Pending: records(fresh), Open: records(open)}, want: decision.Reads{Node: decision.Server, Fresh: records(fresh)},
		},
		"a recovery looks back at nothing": {
			view: pending(plain, recovery), want: decision.Reads{Node: decision.Server},
		},
		"a fault of the present boot": {
			view: pending(plain, fresh), want: decision.Reads{Node: decision.Server, Fresh: records(fresh)},
		},
		"a fault of another boot": {
			view: pending(plain, old), want: decision.Reads{Node: decision.Server, Fresh: records(old), Boots: true},
		},
		"a held fault met its recoveries": {
			view: pending(plain, held), want: decision.Reads{Node: decision.Server},
		},
		"no Node, no boot to compare": {
			view: pending(nil, old), want: decision.Reads{Node: decision.Server, Fresh: records(old)},
		},
		"the session is among the records": {
			view: decision.View{Node: inSession, Open: records(open)}, want: decision.Reads{Node: decision.Server, Named: unlisted},
		},
		"the session is not": {
			view: decision.View{Node: inSession}, marked: true,
			want: decision.Reads{Node: decision.Server, Named: inSession.Active, Session: true},
		},
	} {
		if diff := cmp.Diff(tt.want, decision.Needs(tt.view, tt.cached, tt.marked)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
