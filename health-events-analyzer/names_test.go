package healtheventsanalyzer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// TestANameOfAnotherAgentIsRefused, with file, rule and what would be right, unless the
// connectors give the analyzer the very name.
func TestANameOfAnotherAgentIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := defaultConfig()
	c.RulesPath = write("rules.toml", strings.Replace(string(rule.BuiltIn()), `"RepeatedXID31OnDifferentGPU"`, `"GpuTwice"`, 1))
	_, err := c.rules()
	for _, want := range []string{c.RulesPath, `("GpuTwice"): name:`, `belongs to agent "gpu-health-monitor" (checks "Gpu*"`, "choose another name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	c.Publishers = write("connector.toml", "[[publishers.agent]]\nname = \"gpu-health-monitor\"\nchecks = [\"Gpu*\"]\n"+
		"[[publishers.agent]]\nname = \"health-events-analyzer\"\nchecks = [\"GpuTwice\"]\n")
	if rules, err := c.rules(); err != nil || len(rules) != len(rule.Default()) {
		t.Errorf("%d rules, %v", len(rules), err)
	}
	if files := c.Files(); len(files) != 2 {
		t.Errorf("files %q", files)
	}
	c.RulesPath = ""
	if rules, err := c.rules(); err != nil || len(rules) != len(rule.Default()) {
		t.Errorf("%d built-in rules, %v", len(rules), err)
	}
}
