package conformance_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestEveryProgramReportsMissingConfiguration: each cloud's program names what has to be
// configured, and takes a configuration that has it.
func TestEveryProgramReportsMissingConfiguration(t *testing.T) {
	testkit.Long(t, "each cloud's tests make its source, and the configuration is that of every provider")
	common := []string{"--check-config", "--cluster-name=c", "--store=postgres://h/d"}
	for cloud, c := range map[string]struct{ lacks, has string }{
		"aws":   {"", "--region=eu-central-1"},
		"gcp":   {"gcp.project (--project) is empty", "--project=p"},
		"azure": {"azure.subscription (--subscription) is empty", "--subscription=s"},
		"oci":   {"oci.compartments (--compartments) is empty", "--compartments=ocid1.compartment.oc1..a"},
	} {
		t.Run(cloud, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), cloud)
			build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "../"+cloud+"/csp-health-monitor-"+cloud)
			build.Env = append(build.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if c.lacks != "" {
				out, err := exec.CommandContext(t.Context(), program, common...).CombinedOutput()
				if err == nil || !strings.Contains(string(out), c.lacks) {
					t.Errorf("%v: %s, want %q in it", err, out, c.lacks)
				}
			}
			if out, err := exec.CommandContext(t.Context(), program, append(common, c.has)...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
