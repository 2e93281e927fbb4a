package redact

import (
	"os"
	"strings"
	"testing"
)

// TestEverySignIsPlanted: what is looked for, testdata/planted.txt shows.
func TestEverySignIsPlanted(t *testing.T) {
	text, err := os.ReadFile("testdata/planted.txt")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer("_", "", "-", "", ".", "", " ", "")
	have := plain.Replace(strings.ToLower(characters.Replace(string(text))))
	signs := webhooks
	for _, f := range formats {
		signs = append(signs, strings.Fields(f.prefixes)...)
	}
	for _, c := range programs {
		signs = append(signs, c.names...)
	}
	for _, of := range signsOf {
		signs = append(signs, of...)
	}
	signs = append(signs, parameters...)
	var missing []string
	for _, s := range signs {
		if !strings.Contains(have, plain.Replace(strings.ToLower(s))) {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no line has %q", missing)
	}
}

// TestRulesFit their counters.
func TestRulesFit(t *testing.T) {
	if len(secretFinder.rules) > maxRules {
		t.Errorf("%d rules, %d are counted", len(secretFinder.rules), maxRules)
	}
}
