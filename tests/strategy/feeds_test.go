package strategy

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/tests/overlay"
)

// source reads a file of the repository, or the copy without a filter with which make
// mutate-strategy runs the tests.
func source(t *testing.T, file string) string {
	t.Helper()
	root, err := overlay.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := overlay.Source(root, file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestEveryServiceReadsItsNamedFeed: the seed names the selector of each service
// that acts. What the selector lets through is tested where it is defined; that
// it is the one a service asks for is read from the service's source, because a
// feed is only a notification: a wrong one would cause no action and show nowhere.
func TestEveryServiceReadsItsNamedFeed(t *testing.T) {
	for file, selector := range map[string]string{
		"fault-quarantine/internal/reconciler/service.go":     "Store: fatal.WithoutDeadLetters(), Selector: record.ProcessableHealthEventInserts(),",
		"node-drainer/internal/reconciler/service.go":         "Store: rc.records, Selector: record.NodeQuarantineStatus(),",
		"fault-remediation/internal/reconciler/reconciler.go": "Store: r.Records, Selector: record.QuarantinedAndDrainedNodes(),",
		"health-events-analyzer/healtheventsanalyzer.go":      "Store: records, Selector: record.ProcessableNonFatalUnhealthyInserts(),",
		"event-exporter/internal/delivery/delivery.go":        "Store: ex.Records, Selector: record.AllHealthEventInserts(),",
	} {
		feeds := map[string]int{"health-events-analyzer/healtheventsanalyzer.go": 2}[file] // the second ends what it found
		if text := source(t, file); strings.Count(text, "consumer.Service{") != max(1, feeds) || !strings.Contains(text, selector) {
			t.Errorf("%s does not read %s", file, selector)
		}
	}
}

// TestActingServicesReceiveProcessOnly: what such a service opens goes through
// store.Acting before anything else gets it, so that no selector of its own can
// forget the strategy. fault-quarantine alone also reads what the publishers reported last, to
// find orphaned faults.
func TestActingServicesReceiveProcessOnly(t *testing.T) {
	for file, uses := range map[string][]string{
		"fault-quarantine/faultquarantine.go":   {"opened, err := storeopen.Open(", "opened.Close()", "records := store.Acting(opened)", "Reported: opened,"},
		"node-drainer/nodedrainer.go":           {"opened, err := storeopen.Open(", "opened.Close()", "records := store.Acting(opened)"},
		"fault-remediation/faultremediation.go": {"opened, err := storeopen.Open(", "opened.Close()", "records := store.Acting(opened)"},
	} {
		rest := source(t, file)
		for _, use := range uses {
			if strings.Count(rest, use) != 1 {
				t.Errorf("%s: %q is not there once", file, use)
			}
			rest = strings.ReplaceAll(rest, use, "")
		}
		if strings.Contains(rest, "opened") {
			t.Errorf("%s uses the store beside store.Acting", file)
		}
	}
}
