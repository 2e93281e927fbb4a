package faultquarantine

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/config"
)

// TestAWriterOfRulesReadsNoSecret: no key of a rule set shows what is in a file of the
// pod, neither in the active rules nor in an error.
func TestAWriterOfRulesReadsNoSecret(t *testing.T) {
	dir := t.TempDir()
	uri, file := filepath.Join(dir, "uri"), filepath.Join(dir, "c.toml")
	if err := os.WriteFile(uri, []byte("postgres://owner:pl4nted@db/nv?sslmode=disable"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := "${file:" + uri + "}"
	for key, text := range map[string]string{
		"ruleSets[0].name":                    "name = '" + ref + "'\n",
		"ruleSets[0].label.value":             "name = 'x'\nlabel.key = 'k'\nlabel.value = '" + ref + "'\n",
		"ruleSets[0].match.all[0].expression": "name = 'x'\n[[ruleSets.match.all]]\nkind = 'HealthEvent'\nexpression = '" + ref + "'\n",
	} {
		if err := os.WriteFile(file, []byte("[[ruleSets]]\nenabled = true\ncordon.shouldCordon = true\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := defaultConfig()
		flags := flag.NewFlagSet("fault-quarantine", flag.ContinueOnError)
		set, err := config.Bind(flags, &c)
		if err != nil {
			t.Fatal(err)
		}
		if err := flags.Parse([]string{"--store=" + ref}); err != nil {
			t.Fatal(err)
		}
		err = set.Load(file, os.LookupEnv)
		if err == nil || !strings.Contains(err.Error(), `key "`+key+`": `+ref) || strings.Contains(err.Error(), "pl4nted") {
			t.Errorf("%s: %v", key, err)
		}
		for _, r := range c.rules() {
			if strings.Contains(r.Name, "pl4nted") {
				t.Errorf("%s: the rule set is named %q", key, r.Name)
			}
		}
	}
}
