package ingest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestNumbersOfTheEarlierOne: of the agents that an operator named, and of no other,
// 1 acts and 2 and 3 do not; an event with an id is never one of theirs.
func TestNumbersOfTheEarlierOne(t *testing.T) {
	const id = "0195c000-0000-7000-8000-000000000001"
	for _, tc := range []struct {
		agent, id string
		number    protos.ProcessingStrategy
		want      record.Strategy
	}{
		{"earlier", "", 0, record.Process},
		{"earlier", "", 1, record.Process},
		{"earlier", "", 2, record.PersistOnly},
		{"earlier", "", 3, record.PersistOnly},
		{"earlier", "", 4, record.PersistOnly},
		{"earlier", id, 1, record.PersistOnly},
		{"ours", "", 0, record.Process},
		{"ours", "", 1, record.PersistOnly},
		{"ours", "", 2, record.PersistOnly},
	} {
		m := &memory{}
		d := newServer(m)
		d.EarlierNumbers("earlier")
		e := event()
		e.Agent, e.Id, e.ProcessingStrategy = tc.agent, tc.id, tc.number
		if _, err := d.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{e}}); err != nil {
			t.Fatal(err)
		}
		if got := m.records[0].Event.ProcessingStrategy; got != tc.want {
			t.Errorf("%s with id %q and number %d is %s, want %s", tc.agent, tc.id, tc.number, got, tc.want)
		}
	}
}

// TestLegacyAgentsAreLogged: each agent is logged once, with the setting that fixes it, and
// only where the setting may be.
func TestLegacyAgentsAreLogged(t *testing.T) {
	var log bytes.Buffer
	d := newServer(&memory{})
	d.Log = slog.New(slog.NewTextHandler(&log, nil))
	d.EarlierNumbers("known")
	for _, of := range []struct {
		agent, id string
		number    protos.ProcessingStrategy
	}{
		{"unknown", "", 1}, {"unknown", "", 1}, {"storing", "", 2}, {"known", "", 1}, {"acting", "", 0},
		{"ours", "0195c000-0000-7000-8000-000000000002", 1},
	} {
		e := event()
		e.Agent, e.Id, e.ProcessingStrategy = of.agent, of.id, of.number
		if _, err := d.HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Events: []*protos.HealthEvent{e}}); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "agent=unknown processingStrategy=1") || !strings.Contains(lines[1], "agent=storing") ||
		!strings.Contains(lines[0], "legacyStrategyNumbers = true") {
		t.Errorf("the log says\n%s\nwant one line about each of unknown and storing", &log)
	}
	for i := range 2 * maxHeard {
		d.numbers.logLegacyAgents(d.Log, []*protos.HealthEvent{{Agent: fmt.Sprint(i), ProcessingStrategy: 1}})
	}
	if n := strings.Count(log.String(), "\n"); n != maxHeard {
		t.Errorf("%d agents are told of, want %d at most", n, maxHeard)
	}
}
