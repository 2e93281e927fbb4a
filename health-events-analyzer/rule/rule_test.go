package rule_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// TestTheBuiltInRules are the 22 of existing installations.
func TestTheBuiltInRules(t *testing.T) {
	rules, err := rule.Parse("rules.toml", rule.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) != 22 {
		t.Errorf("%d rules, want 22", len(rules))
	}
	for _, r := range rules {
		if r.Description == "" {
			t.Errorf("%s has no description", r.Name)
		}
	}
}

// TestTheManifestHasTheBuiltInRules: the ConfigMap to start from is the file
// that is built in.
func TestTheManifestHasTheBuiltInRules(t *testing.T) {
	manifest, err := os.ReadFile("../../distros/helm/nvsentinel/manifests/health-events-analyzer-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	for line := range strings.Lines(string(rule.BuiltIn())) {
		if line != "\n" {
			indented.WriteString("    ")
		}
		indented.WriteString(line)
	}
	if !bytes.HasSuffix(manifest, append([]byte("  rules.toml: |\n"), indented.Bytes()...)) {
		t.Error("the manifest's rules are not those of rule/rules.toml: copy them, indented by four")
	}
}

const good = "[[rules]]\nname = \"R\"\naction = \"NONE\"\nclear = \"manual\"\nwindow = \"1h\"\n"

func TestInvalidKeysAreNamed(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"syntax", "[[rules]\n", "f.toml: line 2:"},
		{"nothing", "", "[[rules]] is missing, omit"},
		{"reference", good + "[rules.when]\ncodes = [\"${file:/etc/hostname}\"]\n", `f.toml: key "rules[0].when.codes[0]": ${file:/etc/hostname}: a reference is allowed only in keys of type secret`},
		{"unknown key", good + "windw = 3\n", `unknown key "rules.windw"`},
		{"unknown key within", good + "[rules.when]\ncode = \"3\"\n", `unknown key "rules.when.code"`},
		{"text", good + "[rules.when]\nmessage = \"fallen off the bus\"\n", `unknown key "rules.when.message"`},
		{"text by its metadata", good + "[rules.when]\nmetadata = {a = \"b\"}\n", `unknown key "rules.when.metadata`},
		{"wrong type", good + "count = \"3\"\n", "count"},
		{"name", strings.Replace(good, `"R"`, `"a b"`, 1), `rules[0] ("a b"): name:`},
		{"name twice", good + good, `rules[1] ("R"): name is a duplicate`},
		{"action", strings.Replace(good, "NONE", "REBOOT", 1), `rules[0] ("R"): action: "REBOOT" is not one of NONE,`},
		{"clear", strings.Replace(good, "manual", "", 1), `clear: "" is not sources`},
		{"strategy", good + "processingStrategy = \"EXECUTE_REMEDIATION\"\n", `processingStrategy: "EXECUTE_REMEDIATION" is not PROCESS or PERSIST_ONLY`},
		{"scope", good + "scope = \"rack\"\n", `rules[0] ("R"): scope: "rack" is not node`},
		{"an action for a node by the evidence of others", strings.Replace(good, "NONE", "COMPONENT_RESET", 1) + "scope = \"cluster\"\n",
			`rules[0] ("R"): action: is COMPONENT_RESET with scope = "cluster": use NONE`},
		{"window of a cluster", strings.Replace(good, "1h", "25h", 1) + "scope = \"cluster\"\n", `window: is 25h0m0s with scope = "cluster": use at most 24h`},
		{"node in a rule of one", good + "distinct = [\"node\"]\n", `rules[0] ("R"): distinct: "node" requires scope = "cluster"`},
		{"window", strings.Replace(good, "1h", "0s", 1), "window: is 0s: use a duration"},
		{"count", good + "count = -1\n", "count: is -1: use 1 to"},
		{"two forms", good + "distinct = [\"gpu\"]\n[rules.bursts]\ngap = \"3m\"\n", "bursts and distinct: are mutually exclusive"},
		{"key", good + "by = [\"gpus\"]\n", `by: "gpus" is not gpu, code,`},
		{"key twice", good + "by = [\"gpu\", \"gpu\"]\n", `by: "gpu" is a duplicate`},
		{"key not shared", good + "[[rules.unless]]\nby = [\"gpu\"]\n", `unless[0].by: "gpu" is not listed in by of the rule`},
		{"gap", good + "[rules.bursts]\n", "bursts.gap: is 0s"},
		{"sticky", good + "[rules.bursts]\ngap = \"3m\"\nsticky = [\"79\"]\n", "bursts.stickyWithin: is 0s with 1 sticky codes"},
		{"last", good + "[rules.bursts]\ngap = \"3m\"\nlast = \"two\"\n", `bursts.last: "two" is not any, once or alone`},
		{"register", good + "[rules.when.register]\nname = \"REG7\"\nbits = [32]\n", `when.register.bits: 32 is not a bit of 0 to 31`},
		{"codes", good + "[rules.when]\ncodes = [\"1\"]\nnotCodes = [\"2\"]\n", "when: codes and notCodes are mutually exclusive"},
		{"sequence", good + "[[rules.sequence]]\n", "sequence: requires at least two steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rule.Parse("f.toml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	rules, err := rule.Parse("f.toml", []byte(good+"enabled = false\n"+strings.Replace(good, "R", "S", 1)))
	if err != nil || len(rules) != 1 || rules[0].Name != "S" || rules[0].Scope != rule.OnNode {
		t.Errorf("with a rule switched off: %v %v", rules, err)
	}
}

// TestPipelinesAreRefused: the error states what to write instead.
func TestPipelinesAreRefused(t *testing.T) {
	const form = `
[[rules]]
name = "NAME"
description = "d"
recommended_action = "CONTACT_SUPPORT"
evaluate_rule = true
stage = [
  '{"$match": {"healthevent.nodename": "this.healthevent.nodename"}}',
  '{"$setWindowFields": {}}', '{"$count": "count"}',
]
`
	for name, want := range map[string][]string{
		"RepeatedXID31OnSameGPU": {`rules[0] ("RepeatedXID31OnSameGPU"): the keys stage, recommended_action, evaluate_rule`, "the built-in rule"},
		"Mine":                   {"$match is when, of, window", "$setWindowFields is bursts", "$count is count", "recommended_action is action", "docs/tasks/detect-patterns.md"},
	} {
		_, err := rule.Parse("f.toml", []byte(strings.Replace(form, "NAME", name, 1)))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %v, want %q", name, err, w)
			}
		}
	}
}

// FuzzParse: no file makes it panic, and what is accepted is accepted again.
func FuzzParse(f *testing.F) {
	f.Add(rule.BuiltIn())
	f.Add([]byte(good))
	f.Add([]byte("[[rules]]\nstage = [\"$match\"]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := rule.Parse("f", data)
		second, again := rule.Parse("f", data)
		if (err == nil) != (again == nil) || len(first) != len(second) {
			t.Errorf("two readings differ: %v, %v", err, again)
		}
		for _, r := range first {
			if r.Name == "" || r.Window <= 0 || r.Action == "" || r.Clear == "" {
				t.Errorf("accepted: %+v", r)
			}
		}
	})
}
