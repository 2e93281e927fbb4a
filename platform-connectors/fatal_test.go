package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// TestAnEventThatKillsTheConnector: the node's connector dies whenever it looks at
// one event of its spool, which it has acknowledged. The others are stored, then
// and later, and people are notified of that one.
func TestAnEventThatKillsTheConnector(t *testing.T) {
	testkit.Long(t, "internal/spool TestAnEntryThatKillsIsPassedOver lives the same lives")
	binary, err := testkit.Binary(t.TempDir(), "node-connector")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.makeStoreReachable()
	s.env = []string{"NVSENTINEL_FATAL_TEXT=fatal to platform-connectors"}
	fatal := event("a", 2)
	fatal.Message = "fatal to platform-connectors"
	sent := make(chan error, 1)
	go func() { sent <- send(t.Context(), s.client(), event("a", 1), fatal, event("b", 1)) }()
	records := s.records()
	var p *process
	deaths := testkit.RunUntilDone(t, 9, func() <-chan struct{} { p = s.connect(binary); return p.done }, func() bool {
		all, err := records.List(t.Context(), store.Query{})
		letters, problem := records.DeadLetters(t.Context(), forwarder.DeadLettersOf(nodeName))
		return err == nil && problem == nil && len(all) == 2 && len(letters) == 1 && letters[0].ID == fatal.GetId()
	})
	if err := <-sent; err != nil || deaths < 4 {
		t.Errorf("sent: %v; the process died %d times", err, deaths)
	}
	s.send(event("b", 2))
	awaitStored(t, records, 3)
	if _, err := records.Get(t.Context(), fatal.GetId()); err == nil {
		t.Error("the fatal event is stored")
	}
	letters, err := os.ReadFile(filepath.Join(s.dir, "spool", "dead-letters.jsonl"))
	if err != nil || strings.Count(string(letters), `"reason":"fatal"`) != 1 {
		t.Errorf("dead letters on the node: %s, %v", letters, err)
	}
	testkit.Until(t, 2*time.Minute, func() bool {
		events, err := s.cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=EventDeadLettered,involvedObject.name=" + nodeName})
		return err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, fatal.GetId())
	})
	p.stop()
	p = s.connect(binary)
	s.send(event("b", 3))
	awaitStored(t, records, 4)
	p.stop()
}
