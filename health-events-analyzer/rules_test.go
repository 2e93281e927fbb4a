package healtheventsanalyzer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// onOneGPU is a file with one rule: XID 31 on as many GPUs of one scope.
func onOneGPU(name, scope string, count int) string {
	by := `"code"`
	if scope == "node" {
		by += `, "gpu"`
	}
	return fmt.Sprintf(`[[rules]]
name = %q
description = "XID 31 came again"
action = "NONE"
clear = "manual"
window = "24h"
scope = %q
by = [%s]
count = %d
[rules.when]
codes = ["31"]
`, name, scope, by, count)
}

// TestRulesChangeWhileItRuns: the file is a ConfigMap that is replaced. The new rules
// evaluate what comes from then on, with what is stored before it; a bad file changes
// nothing, and metric and readiness report it.
func TestRulesChangeWhileItRuns(t *testing.T) {
	s := newSite(t, storetest.SQLiteDSN(t))
	mount := testkit.NewMount(t, t.TempDir(), "rules.toml", onOneGPU("First", "node", 2))
	p := daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args("--rules-path", mount.File)...)
	metric := func(line string) {
		t.Helper()
		testkit.Until(t, waitTimeout, func() bool { return strings.Contains(s.metrics(p), line+"\n") })
	}
	s.fault("n1", "GPU-1")
	s.fault("n1", "GPU-1")
	s.await("First n1 PROCESS")

	mount.Change(strings.Replace(onOneGPU("Bad", "node", 1), "count", "cuont", 1))
	metric("nvsentinel_config_reload_failed 1")
	answer, err := http.Get("http://" + p.Address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode == http.StatusOK {
		t.Error("it is ready with a bad file")
	}
	s.fault("n2", "GPU-1")
	s.fault("n2", "GPU-1")
	s.await("First n2 PROCESS")

	mount.Change(onOneGPU("Second", "node", 3))
	metric("nvsentinel_config_reload_failed 0")
	metric(`nvsentinel_analyzer_evaluations_total{reason="Matched",rule_name="Second"} 0`)
	s.fault("n2", "GPU-1") // the third one: two were there before the rule
	s.await("Second n2 PROCESS")

	mount.Change(onOneGPU("Third", "cluster", 7)) // the first rule of the cluster
	metric(`nvsentinel_analyzer_evaluations_total{reason="Matched",rule_name="Third"} 0`)
	s.fault("n3", "GPU-1")
	s.fault("n4", "GPU-1") // the seventh
	s.await("Third n4 PROCESS")
	if got, want := s.published(), []string{"First n1 PROCESS", "First n2 PROCESS", "Second n2 PROCESS", "Third n4 PROCESS"}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}
