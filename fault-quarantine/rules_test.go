package faultquarantine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// about is a configuration with one rule set, which cordons for one code.
func about(code, more string) string {
	return fmt.Sprintf(`dryRun = false
%[1]s
[circuitBreaker]
percentage = 100
[[ruleSets]]
enabled = true
name = "code %[2]s"
[[ruleSets.match.all]]
kind = "HealthEvent"
expression = "'%[2]s' in event.errorCode"
[ruleSets.cordon]
shouldCordon = true
`, more, code)
}

// TestRuleSetsChangeWhileItRuns: the file is a ConfigMap that is replaced. Other
// rule sets apply from then on; a bad file changes nothing, and log, metric and
// readiness report it; what needs a restart is named.
func TestRuleSetsChangeWhileItRuns(t *testing.T) {
	s := here(t)
	mount := testkit.NewMount(t, t.TempDir(), "fault-quarantine.toml", about("79", ""))
	s.config = mount.File
	names := s.nodes("rules", 4, nil)
	code := func(c string) func(*record.Record) { return func(r *record.Record) { r.Event.ErrorCode = []string{c} } }
	p := s.start()
	s.await(s.fault(names[0], code("79")).ID, record.Matched, record.Quarantined)
	s.await(s.fault(names[1], code("48")).ID, record.NoRuleMatched, "")

	mount.Change(strings.Replace(about("48", ""), "event.errorCode", "event.errorCode &&", 1))
	p.awaitMetric("nvsentinel_config_reload_failed 1")
	if code, text := p.get("/readyz"); code == 200 || !strings.Contains(text, "the previous configuration is active") {
		t.Errorf("readiness %d with a bad file: %s", code, text)
	}
	s.await(s.fault(names[2], code("79")).ID, record.Matched, record.Quarantined)
	s.await(s.fault(names[1], code("48")).ID, record.NoRuleMatched, "")

	mount.Change(about("48", `retention = "100h"`))
	p.awaitMetric("nvsentinel_config_reload_failed 0")
	s.await(s.fault(names[1], code("48")).ID, record.Matched, record.Quarantined)
	s.await(s.fault(names[3], code("79")).ID, record.NoRuleMatched, "")
	s.awaitNode(names[0], quarantined) // what was evaluated before stands
	p.stop()
	for _, want := range []string{"changed configuration rejected, previous configuration", `"keys":["retention"]`} {
		if !strings.Contains(p.output(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}
