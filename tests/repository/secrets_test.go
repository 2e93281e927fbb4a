package repository

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// reveals takes the text out of a config.Secret.
	reveals = regexp.MustCompile(`\.Reveal\(\)`)
	// decodes reads TOML without internal/config.
	decodes = regexp.MustCompile(`toml\.(Decode|DecodeFile|DecodeFS|Unmarshal|NewDecoder)\(`)
	// runs is a program with a configuration, plants the test of one.
	runs, plants = regexp.MustCompile(`daemon\.(Main|Once|NewController)\(`), regexp.MustCompile(`reference\.Page\(`)
)

// edges are the files where a secret is used: by whom a store is opened, and what sends.
var edges = []string{
	"event-exporter/eventexporter.go", "fault-quarantine/faultquarantine.go", "fault-remediation/faultremediation.go",
	"health-events-analyzer/healtheventsanalyzer.go",
	"health-monitors/csp-health-monitor/program/program.go", "node-drainer/nodedrainer.go",
	"platform-connectors/cluster.go", "platform-connectors/gateway.go",
	"repair-steps/internal/delivery/config.go", "repair-steps/internal/delivery/delivery.go",
	"repair-steps/log-collector/bucket.go", "repair-steps/log-collector/config.go", "repair-steps/log-collector/open.go",
	"store-client/storeopen/location.go",
}

// decoders are the files that decode TOML by themselves: what is built in, was checked by
// config before, or is another program's file, of which names alone are read, or which is
// converted as text.
var decoders = []string{
	"cli/convert/store.go", "cli/convert/toml.go",
	"health-events-analyzer/rule/pipeline.go", "health-monitors/syslog-health-monitor/catalogue/catalogue.go", "internal/report/names.go",
}

// TestSecretsAreRevealedAtTheEdges: a secret is taken out of its type only in files that
// are known to do it, where somebody has looked at what becomes of it.
func TestSecretsAreRevealedAtTheEdges(t *testing.T) {
	var found []string
	for name, text := range product(t) {
		if !strings.HasPrefix(name, "internal/config/") && reveals.MatchString(text) {
			found = append(found, name)
		}
	}
	same(t, "files that reveal secrets", found, edges)
}

// TestConfigurationsAreDecodedInOnePlace, which refuses references outside of secrets.
func TestConfigurationsAreDecodedInOnePlace(t *testing.T) {
	var found []string
	for name, text := range product(t) {
		if !strings.HasPrefix(name, "internal/config/") && decodes.MatchString(text) {
			found = append(found, name)
		}
	}
	same(t, "files that decode TOML without internal/config", found, decoders)
}

// TestEveryProgramPlantsSecrets: each has a test of its page, which plants secrets and
// references in all keys of its configuration.
func TestEveryProgramPlantsSecrets(t *testing.T) {
	programs, tests := 0, 0
	for name, text := range sources(t) {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			tests += len(plants.FindAllString(text, -1))
		case !strings.HasPrefix(name, "internal/"):
			programs += len(runs.FindAllString(text, -1))
		}
	}
	if programs < 25 || programs != tests {
		t.Errorf("%d programs have a configuration, %d tests call reference.Page with one", programs, tests)
	}
}

// product are the sources without tests and what exists for them.
func product(t *testing.T) map[string]string {
	t.Helper()
	all := sources(t)
	for name := range all {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/testkit/") {
			delete(all, name)
		}
	}
	return all
}

func same(t *testing.T, what string, found, known []string) {
	t.Helper()
	if slices.Sort(found); !slices.Equal(found, known) {
		t.Errorf("%s are %q, known are %q", what, found, known)
	}
}
