package rule_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// TestDefaults: a key that a rule leaves out has the value of another key; a key that is
// given has its own.
func TestDefaults(t *testing.T) {
	when, of, among := rule.Match{Codes: []string{"when"}}, rule.Match{Codes: []string{"of"}}, rule.Match{Codes: []string{"among"}}
	by := []rule.Key{rule.Device, rule.Code, "NVLINK"}
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"of is when", rule.Rule{When: when}.Counted(), when},
		{"of", rule.Rule{When: when, Of: &of}.Counted(), of},
		{"the message is the description", rule.Rule{Description: "d"}.Text(), "d"},
		{"the message", rule.Rule{Description: "d", Message: "m"}.Text(), "m"},
		{"the count is 1", rule.Rule{}.Wanted(), 1},
		{"the count", rule.Rule{Count: 2}.Wanted(), 2},
		{"bursts are made of when", rule.Bursts{}.Made(rule.Rule{When: when}), when},
		{"bursts are made of of", rule.Bursts{}.Made(rule.Rule{When: when, Of: &of}), of},
		{"bursts are made of among", rule.Bursts{Among: &among}.Made(rule.Rule{When: when, Of: &of}), among},
		{"a burst shares the rule's by without code", rule.Bursts{}.Shared(rule.Rule{By: by}), []rule.Key{rule.Device, "NVLINK"}},
		{"a burst shares its own by", rule.Bursts{By: []rule.Key{rule.Code}}.Shared(rule.Rule{By: by}), []rule.Key{rule.Code}},
		{"a burst shares nothing, as it says", rule.Bursts{By: []rule.Key{}}.Shared(rule.Rule{By: by}), []rule.Key{}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
}

// TestRulesOfAScope: each window gets its own rules, in the order of the file.
func TestRulesOfAScope(t *testing.T) {
	rules := []rule.Rule{{Name: "a", Scope: rule.OnNode}, {Name: "b", Scope: rule.OnCluster}, {Name: "c", Scope: rule.OnNode}}
	for scope, want := range map[rule.Scope][]string{rule.OnNode: {"a", "c"}, rule.OnCluster: {"b"}} {
		var got []string
		for _, r := range scope.Of(rules) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of the scope %s: %v, want %v", scope, got, want)
		}
	}
}
