package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/report"
)

// TestNames: what the connectors give to another agent is not the agent's, unless they give
// it the very name.
func TestNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "connector.toml")
	write := func(text string) string {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	given := `
[pipeline]
unknown = 1
[[publishers.agent]]
name = "gpu-health-monitor"
checks = ["Gpu*"]
[[publishers.agent]]
name = "me"
account = "a"
checks = ["GpuMine", "Some"]
`
	for name, tt := range map[string]struct{ text, name, want string }{
		"built-in":                    {"", "GpuBroken", `"GpuBroken" belongs to agent "gpu-health-monitor" (checks "Gpu*" in the connectors' built-in names)`},
		"built-in, free":              {"", "GPUNodeNotReady", ""},
		"no agents in the file":       {"a = 1", "CSPMaintenance", `belongs to agent "csp-health-monitor"`},
		"given to another":            {given, "GpuBroken", `(checks "Gpu*" in ` + file + ")"},
		"given by its very name":      {given, "GpuMine", ""},
		"not in the file's list":      {given, "SysLogsMine", ""},
		"another name of the agent's": {given, "Some", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if tt.text != "" {
				path = write(tt.text)
			}
			names, err := report.ReadNames(path)
			if err != nil {
				t.Fatal(err)
			}
			err = names.Of("me")(tt.name)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := report.ReadNames(write("[")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is no TOML: %v", err)
	}
	if _, err := report.ReadNames(file + ".none"); err == nil {
		t.Error("a file that is not there is read")
	}
}
