package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

// loadFile reads a file of the given name over the defaults.
func loadFile(t *testing.T, name, content string) (sample, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaults()
	set, err := config.Bind(flag.NewFlagSet("svc", flag.ContinueOnError), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, set.Load(path, os.LookupEnv)
}

// TestYAML: a file whose name ends so has the keys, the types and the strictness of
// the TOML one; a key without a value keeps its default.
func TestYAML(t *testing.T) {
	const text = "name: f # with a comment\n'on': true\ncount: 5\nratio: 0.5\nlist: [a]\ninner:\n  after: 90s\n  path:\nrules:\n- path: r\nlabels: {a: b}\n"
	want := sample{
		Name: "f", On: true, Count: 5, Ratio: 0.5, List: []string{"a"}, Inner: inner{Path: "/p", After: 90 * time.Second},
		Rules: []inner{{Path: "r"}}, Labels: map[string]string{"a": "b"},
	}
	for _, name := range []string{"c.yaml", "c.yml"} {
		got, err := loadFile(t, name, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, err := loadFile(t, "c.yaml", "# nothing\n"); err != nil || !cmp.Equal(defaults(), got) {
		t.Errorf("an empty file: %+v, %v", got, err)
	}
}

func TestYAMLErrors(t *testing.T) {
	for _, tc := range []struct{ name, file, text, want string }{
		{"unknown key", "c.yaml", "inner:\n  paht: y\n", `c.yaml: unknown key "inner.paht"`},
		{"wrong type", "c.yaml", "count: three\n", `c.yaml: (key "count"): incompatible types`},
		{"one key twice", "c.yaml", "name: a\nname: b\n", `key "name" already set in map`},
		{"syntax", "c.yaml", "name: [\n", "line 1"},
		{"a list of keys", "c.yaml", "- name: a\n", "c.yaml: "},
		{"YAML under another name", "c.toml", "name: f\n", "The content is YAML, which requires a file name that ends in .yaml"},
		{"TOML under the name of YAML", "c.yaml", "[inner]\npath = 'x'\n", "c.yaml: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := loadFile(t, tc.file, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q in it", err, tc.want)
			}
		})
	}
}

// TestPrefix: a struct that is there twice has flags of its own each time.
func TestPrefix(t *testing.T) {
	var cfg struct {
		One inner `prefix:"one-"`
		Two inner `prefix:"two-"`
	}
	flags := flag.NewFlagSet("svc", flag.ContinueOnError)
	set, err := config.Bind(flags, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse([]string{"--one-inner-path=/1", "--two-inner-path=/2"}); err != nil {
		t.Fatal(err)
	}
	if err := set.Load("", os.LookupEnv); err != nil || cfg.One.Path != "/1" || cfg.Two.Path != "/2" {
		t.Errorf("%+v, %v", cfg, err)
	}
}
