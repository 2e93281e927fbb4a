package check

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestPageNamesPersistOnlyChecks: docs/reference/processing-strategy.md lists the checks that do
// not act under PROCESS.
func TestPageNamesPersistOnlyChecks(t *testing.T) {
	want, got := map[string]bool{}, map[string]bool{}
	rules, otherwise := DefaultRules(record.Process)
	for name, rule := range rules {
		if rule.Strategy == record.PersistOnly {
			want[name] = true
		}
	}
	page, err := os.ReadFile("../../../docs/reference/processing-strategy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| gpu-health-monitor \\| `(\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		got[m[1]] = true
	}
	if diff := cmp.Diff(want, got); diff != "" || otherwise.Strategy != record.Process || !strings.Contains(string(page), "`--processingStrategy=PROCESS`") {
		t.Errorf("names in docs/reference/processing-strategy.md (-want +got):\n%s", diff)
	}
}
