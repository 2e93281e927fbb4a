package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestInvalidFileIsRefusedByName(t *testing.T) {
	good := one("true")
	for name, c := range map[string]struct{ text, want string }{
		"syntax":            {"[[policies]]\nname = \n", `policies.toml: line 2 (key "policies.name")`},
		"wrong type":        {strings.Replace(good, "enabled = true", "enabled = 1", 1), "incompatible types"},
		"nothing":           {"", "[[policies]] is missing, add"},
		"unknown key":       {strings.Replace(good, "message", "massage", 1), `policies.toml: line 12: unknown key "policies.healthEvent.massage"`},
		"reference":         {strings.Replace(good, `"m"`, `"${file:/etc/hostname}"`, 1), `policies.toml: key "policies[0].healthEvent.message": ${file:/etc/hostname}: a reference is allowed only in keys of type secret`},
		"in a predicate":    {one("'${env:HOME}' == ''"), `policies.toml: key "policies[0].predicate.expression": ${env:HOME}: a reference`},
		"duplicate":         {good + good, `policies[1] ("P"): name is a duplicate`},
		"name":              {strings.Replace(good, `"P"`, `"a b"`, 1), `name "a b" is not`},
		"enabled missing":   {strings.Replace(good, "enabled = true\n", "", 1), `policies[0] ("P"): enabled is missing`},
		"version missing":   {strings.Replace(good, "version = \"v1\"\n", "", 1), "resource.version is missing"},
		"kind missing":      {strings.Replace(good, "kind = \"Node\"\n", "", 1), "resource.kind is missing"},
		"no association":    {strings.Replace(good, `"Node"`, `"Pod"`, 1), "nodeAssociation.expression is missing"},
		"needless":          {good + "[policies.nodeAssociation]\nexpression = \"'a'\"\n", "a Node is associated with itself"},
		"empty expression":  {one(" "), "predicate.expression is missing"},
		"syntax of CEL":     {one("true &&"), `policies[0] ("P"): predicate.expression: ERROR: <input>:1:`},
		"unknown variable":  {one("\n  foo"), "<input>:1:3: undeclared reference to 'foo'"},
		"broken pattern":    {one("resource.metadata.name.matches('[')"), `policies[0] ("P"): predicate.expression: error parsing regexp`},
		"has a comparison":  {one("has(resource.metadata.name == 'a')"), "has() takes a field or a literal key: has(a.b), has(a['b/c'])"},
		"has a computed":    {one("has(resource.metadata[resource.kind])"), "has() takes a field or a literal key: has(a.b), has(a['b/c'])"},
		"not a bool":        {one("'x'"), "returns string, not bool"},
		"computed kind":     {one("lookup('v1', resource.kind, '', '') == null"), "must be literal strings"},
		"broken version":    {one("lookup('a/b/c', 'Pod', '', '') == null"), ") is not a valid version and kind"},
		"action":            {strings.Replace(good, "NONE", "REBOOT", 1), `recommended action "REBOOT" is not one of`},
		"custom":            {strings.Replace(good, "NONE", "CUSTOM", 1), "customRecommendedAction requires"},
		"strategy":          {good + "processingStrategy = \"STORE_ONLY\"\n", `processing strategy "STORE_ONLY"`},
		"both":              {good + "[policies.healthEvent.drainOverrides]\nforce = true\nskip = true\n", "drainOverrides: force and skip are mutually exclusive"},
		"class":             {strings.Replace(good, "componentClass = \"Node\"\n", "", 1), "componentClass is missing"},
		"message":           {strings.Replace(good, `"m"`, `""`, 1), "message is missing"},
		"long message":      {strings.Replace(good, `"m"`, `"`+strings.Repeat("m", 1025)+`"`, 1), "healthEvent.message has 1025 bytes, at most 1024 are allowed"},
		"empty code":        {good + "errorCode = [\"1\", \"\"]\n", `errorCode[1] "" is empty`},
		"twice the code":    {good + "errorCode = [\"1\", \"1\"]\n", `errorCode[1] "1"`},
		"disabled is wrong": {strings.Replace(one("nonsense"), "enabled = true", "enabled = false", 1), "undeclared reference"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("policies.toml", c.text, objects{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), "policies.toml") {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

// TestAllowedLimits: the longest message, and several codes.
func TestAllowedLimits(t *testing.T) {
	message := strings.Repeat("m", 1024)
	set, err := Parse("policies.toml", strings.Replace(one("true"), `"m"`, `"`+message+`"`, 1)+"errorCode = [\"48\", \"79\"]\n", objects{})
	if err != nil {
		t.Fatal(err)
	}
	if r := set.Policies[0].Report; r.Message != message || !slices.Equal(r.Codes, []string{"48", "79"}) {
		t.Errorf("it reports %+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(one("true"))
	f.Add(one("has(resource.metadata.labels['a']) && now - timestamp(resource.t) > duration('1h')"))
	f.Add(one("lookup('v1', 'Pod', 'a', 'b').spec.nodeName == 'x'"))
	f.Add(one("[1, 2].map(x, x * 2).sum() > 3 && quantity('1Gi').isGreaterThan(quantity(resource.q))"))
	object := map[string]any{"metadata": map[string]any{"name": "n", "labels": map[string]any{"a": "b"}}, "t": "2026-01-01T00:00:00Z", "q": "2Gi"}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse("fuzz", text, objects{})
		if err != nil {
			return
		}
		for _, p := range set.Policies {
			m, err := p.Match(object, now, nil)
			if err == nil && !m.Flip.IsZero() && m.Flip.Before(now) {
				t.Errorf("flip %s is past", m.Flip)
			}
			pruned, perr := p.Match(set.Prune(p.Kind, object), now, nil)
			if (err == nil) != (perr == nil) || m.Matched != pruned.Matched {
				t.Errorf("pruning changed the answer: %v %v, %v %v", m, err, pruned, perr)
			}
			_, _ = p.Node(object, now, nil)
		}
	})
}
