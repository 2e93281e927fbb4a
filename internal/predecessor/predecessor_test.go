package predecessor_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/predecessor"
)

// TestList: every entry is whole, no program has two answers for one name, and there
// are enough of what people give to programs and to the chart.
func TestList(t *testing.T) {
	seen, given := map[string]bool{}, 0
	for _, n := range predecessor.All() {
		if !slices.Contains(predecessor.Kinds(), n.Kind) || n.Name == "" || n.Here == "" && n.Note == "" {
			t.Errorf("%+v is not whole", n)
		}
		for _, program := range append(slices.Clone(n.At), strings.Repeat("all", 1-min(1, len(n.At)))) {
			at := string(n.Kind) + " " + program + " " + n.Name
			if program != "" && seen[at] {
				t.Errorf("%s is there twice", at)
			}
			seen[at] = true
		}
		if slices.Contains([]predecessor.Kind{predecessor.Flag, predecessor.Key, predecessor.Value}, n.Kind) {
			given++
		}
	}
	if given < 60 {
		t.Errorf("%d flags, keys and values, want 60 at least", given)
	}
}

func TestHint(t *testing.T) {
	for _, tc := range []struct {
		kind           predecessor.Kind
		program, given string
		want           string
	}{
		{predecessor.Flag, "janitor", "metrics-port", "metrics-port is a flag of the earlier NVSentinel; here it is --metrics-address=:PORT (docs/coming-from-nvsentinel.md)"},
		{predecessor.Flag, "node-drainer", "config-path", "here it is --config ("},
		{predecessor.Flag, "health-events-analyzer", "config-path", "here it is --rules-path; rules have another form"},
		{predecessor.Flag, "janitor", "polling-interval", ""},
		{predecessor.Flag, "janitor", "nmae", ""},
		{predecessor.Key, "node-drainer", "customDrain.apiGroup", "customDrain is a key of the earlier NVSentinel; here there is nothing like it: node-drainer evicts"},
		{predecessor.Key, "fault-remediation", "updateRetry.maxRetries", "updateRetry is a key"},
		{predecessor.Key, "janitor", "global.cspProviderHost", "here it is cspPluginHost"},
	} {
		if got := predecessor.Hint(tc.kind, tc.program, tc.given); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s %s of %s: %q, want %q in it", tc.kind, tc.given, tc.program, got, tc.want)
		}
	}
	set := map[string]string{"AUDIT_ENABLED": "true", "CA_CERT_READ_INTERVAL_SECONDS": "", "LOG_COLLECTOR_TIMEOUT": "10m", "LOG_LEVEL": "info"}
	lookup := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	if got := predecessor.InEnvironment("janitor", lookup); len(got) != 1 || got[0].Name != "AUDIT_ENABLED" {
		t.Errorf("in the environment: %v", got)
	}
}

// TestMadeOfTheList: the page and the chart's list are what `go generate` writes.
func TestMadeOfTheList(t *testing.T) {
	page, err := os.ReadFile("../../" + predecessor.Page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(predecessor.Tables(string(page)), string(page)); diff != "" {
		t.Errorf("%s is stale: go generate ./predecessor (-list +page):\n%s", predecessor.Page, diff)
	}
	for _, kind := range predecessor.Kinds() {
		if !strings.Contains(string(page), "<!-- names: "+string(kind)+" -->") {
			t.Errorf("%s has no table of kind %s", predecessor.Page, kind)
		}
	}
	want, err := predecessor.Values()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../distros/helm/nvsentinel/earlier-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the chart's list is stale: go generate ./predecessor (-list +chart):\n%s", diff)
	}
}
