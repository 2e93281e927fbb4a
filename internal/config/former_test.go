package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
)

// spelt is a configuration with keys whose words are set apart by case.
type spelt struct {
	Block
	Host  string           `toml:"singleHost"`
	Table part             `toml:"failureHandling"`
	List  []part           `toml:"ruleSets"`
	Named map[string]*part `toml:"named"`
	Polls int              `toml:"consecutivePolls"`
}

// Block is embedded.
type Block struct {
	DryRun bool `toml:"dryRun"`
}

type part struct {
	Most  time.Duration `toml:"maxLag"`
	Rate  float64       `toml:"qps" flag:"kube-api-qps" usage:"requests per second"`
	Inner struct {
		Max int `toml:"maxItems"`
	} `toml:"inner"`
}

// FormerKeys implements config.Former.
func (spelt) FormerKeys() map[string]string { return map[string]string{"datastore": "store"} }

// FormerVariables implements config.Former.
func (spelt) FormerVariables() map[string]string {
	return map[string]string{"DATASTORE_HOST": "store", "DATASTORE_PORT": "store"}
}

// TestKeysInAnotherSpelling end the start. The error names the file, the line, the key, what
// it is called, and the command that converts the file.
func TestKeysInAnotherSpelling(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		message          []string
		not              string
	}{
		{name: "present ones", text: "singleHost = 'a'\ndryRun = true\n[failureHandling]\nmaxLag = '1s'\n"},
		{name: "words set apart by signs", text: "dry-run = true\nsingle_host = 'a'\n", message: []string{
			`c.toml: line 1: unknown key "dry-run": it is spelled dryRun now`, `c.toml: line 2: unknown key "single_host": it is spelled singleHost now`,
			"nvsentinel convert-config --program svc ",
		}},
		{name: "in tables, lists and maps", text: "[failure_handling]\nmax_lag = '1s'\n[[rule-sets]]\nmaxLag = '1s'\n[named.x]\nmax_lag = '4s'\n[named.x.inner]\nmax-items = 1\n", message: []string{
			`unknown key "failure_handling": it is spelled failureHandling now`, `unknown key "rule-sets": it is spelled ruleSets now`,
			`unknown key "named.x.max_lag": it is spelled maxLag now`, `unknown key "named.x.inner.max-items": it is spelled maxItems now`,
		}},
		{name: "as the flag", text: "[failureHandling]\nkube-api-qps = 5\n", message: []string{`"failureHandling.kube-api-qps": it is spelled qps now`}},
		{name: "in YAML", file: "c.yaml", text: "single-host: a\n", message: []string{`c.yaml: unknown key "single-host": it is spelled singleHost now`}},
		{name: "removed", text: "[datastore]\nhost = 'h'\n", message: []string{`unknown key "datastore": it was removed: use store`, "convert-config"}},
		{name: "renamed", text: "looks = 3\n[failureHandling]\nlooks = 3\n", message: []string{
			`line 1: unknown key "looks": it was renamed to consecutivePolls`, `unknown key "failureHandling.looks"`,
		}, not: `"failureHandling.looks": it was`},
		{name: "renamed alone", text: "looks = 3\n", message: []string{"it was renamed to consecutivePolls"}, not: "convert-config"},
		{name: "a typo", text: "singelHost = 'a'\n", message: []string{`unknown key "singelHost": did you mean singleHost?`}, not: "convert-config"},
		{name: "a typo below a name", text: "[named.x]\nmaxLga = '1s'\n", message: []string{`unknown key "named.x.maxLga": did you mean maxLag?`}, not: "convert-config"},
		{name: "a typo of an embedded key", text: "dryRum = true\n", message: []string{`unknown key "dryRum": did you mean dryRun?`}, not: "convert-config"},
		{name: "nothing like it", text: "customDrain = 1\n", message: []string{`unknown key "customDrain"`, "nvsentinel convert-config --program svc "}, not: "did you mean"},
		{name: "a typo beside a former key", text: "singelHost = 'a'\ndry-run = true\n", message: []string{"did you mean singleHost?", "it is spelled dryRun now", "convert-config"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.file == "" {
				tt.file = "c.toml"
			}
			path := filepath.Join(t.TempDir(), tt.file)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := loadSpelt(t, path, nil)
			if (err == nil) != (len(tt.message) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.message {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q in it", err, want)
				}
			}
			if tt.not != "" && strings.Contains(err.Error(), tt.not) {
				t.Errorf("%v\nwant no %q in it", err, tt.not)
			}
		})
	}
}

// TestVariablesOfBefore: one that was read before and is not any more ends the start; what
// Kubernetes sets for a Service called datastore does not.
func TestVariablesOfBefore(t *testing.T) {
	err := loadSpelt(t, "", map[string]string{"DATASTORE_HOST": "h", "DATASTORE_PORT": "tcp://10.0.0.7:80"})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"environment variable DATASTORE_HOST was removed: use store", "nvsentinel convert-config --kind environment"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "DATASTORE_PORT") {
		t.Errorf("%v\nnames what Kubernetes has set", err)
	}
	if err := loadSpelt(t, "", map[string]string{"DATASTORE_HOST": "", "DATASTORE_PORT": "udp://10.0.0.7:80", "OTHER": "x"}); err != nil {
		t.Error(err)
	}
}

func loadSpelt(t *testing.T, file string, variables map[string]string) error {
	t.Helper()
	var got spelt
	set, err := config.Bind(flag.NewFlagSet("svc", flag.ContinueOnError), &got)
	if err != nil {
		t.Fatal(err)
	}
	return set.Load(file, func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
}
