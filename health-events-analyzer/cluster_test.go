package healtheventsanalyzer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
)

// rackRules are one of the cluster, and the one that a marker needs.
const rackRules = `
[[rules]]
name = "SameXIDOnThreeNodes"
action = "NONE"
scope = "cluster"
clear = "sources"
window = "1h"
by = ["code"]
distinct = ["node"]
count = 3
[rules.when]
codes = ["79"]
[[rules]]
name = "RepeatedXID31OnDifferentGPU"
action = "NONE"
clear = "sources"
window = "1h"
by = ["code"]
distinct = ["gpu"]
count = 2
[rules.when]
codes = ["31"]
`

// TestAFaultOfTheCluster: one fault of three nodes, found before a restart, is
// not found again by what comes after it, and ends when the three have recovered.
func TestAFaultOfTheCluster(t *testing.T) {
	stores(t, func(t *testing.T, dsn string) {
		s := newSite(t, dsn)
		path := filepath.Join(t.TempDir(), "rules.toml")
		if err := os.WriteFile(path, []byte(rackRules), 0o600); err != nil {
			t.Fatal(err)
		}
		begin := func() *daemon.Running {
			return daemon.RunForTest(t, record.AnalyzerAgent, defaultConfig(), build, s.args("--rules-path", path)...)
		}
		lost := func(node string) { s.fault(node, node, func(r *record.Record) { r.Event.ErrorCode = []string{"79"} }) }
		const found = "SameXIDOnThreeNodes n3 PROCESS"
		one := begin()
		for _, node := range []string{"n1", "n2", "n3"} {
			lost(node)
		}
		s.await(found)
		one.Stop()
		for _, node := range []string{"n4", "n5", "n6", "n1"} {
			lost(node)
		}
		begin()
		if got := s.settled("m1"); !slices.Equal(got, []string{found}) {
			t.Errorf("after a restart: %v", got)
		}
		for _, node := range []string{"n3", "n1"} {
			s.fault(node, node, healthy)
		}
		if got := s.settled("m2"); slices.Contains(got, "-"+found) {
			t.Errorf("with one of three causes: %v", got)
		}
		s.fault("n2", "n2", healthy)
		s.await("-" + found)
	})
}
