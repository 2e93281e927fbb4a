package eviction

import (
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

func compile(t *testing.T, c Config) Policy {
	t.Helper()
	p, err := c.Compile()
	if err != nil {
		t.Fatalf("compiling: %v", err)
	}
	return p
}

func TestTheMostSpecificRuleWins(t *testing.T) {
	rules := []NamespaceRule{
		{"*", Immediate},
		{"team-*", DeleteAfterTimeout},
		{"team-a*", AllowCompletion},
		{"team-ab", Immediate},
		{"*-prod", DeleteAfterTimeout},
		{"?-prod", AllowCompletion},
		{"team-[xy]", Immediate},
		{"*-production", Immediate},
	}
	tests := []struct {
		namespace string
		mode      Mode
		why       Reason
	}{
		{"anything", Immediate, MatchedByAll},
		{"team-b", DeleteAfterTimeout, MatchedByRule},
		{"team-ac", AllowCompletion, MatchedByRule},
		{"team-ab", Immediate, NamedByRule},
		{"web-prod", DeleteAfterTimeout, MatchedByRule},
		{"x-prod", DeleteAfterTimeout, MatchedByRule},          // equally specific: the first written
		{"team-x", Immediate, MatchedByRule},                   // one literal more than team-*
		{"team-production", DeleteAfterTimeout, MatchedByRule}, // what the name begins with comes first
	}
	for _, tt := range tests {
		t.Run(tt.namespace, func(t *testing.T) {
			mode, why := compile(t, with(rules)).ModeOf(tt.namespace)
			if mode != tt.mode || why != tt.why {
				t.Errorf("mode %s (%s), want %s (%s)", mode, why, tt.mode, tt.why)
			}
		})
	}
}

func with(rules []NamespaceRule) Config {
	c := Default()
	c.UserNamespaces = rules
	return c
}

func TestTheOrderOfRulesDoesNotMatterWhereOneIsMoreSpecific(t *testing.T) {
	rules := []NamespaceRule{{"training", AllowCompletion}, {"train*", DeleteAfterTimeout}, {"*", Immediate}}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		var mixed []NamespaceRule
		for _, i := range order {
			mixed = append(mixed, rules[i])
		}
		p := compile(t, with(mixed))
		for ns, want := range map[string]Mode{"training": AllowCompletion, "trains": DeleteAfterTimeout, "web": Immediate} {
			if got, _ := p.ModeOf(ns); got != want {
				t.Errorf("order %v: %s is %s, want %s", order, ns, got, want)
			}
		}
	}
}

func TestANamespaceWithoutARuleMayComplete(t *testing.T) {
	p := compile(t, with(nil))
	if mode, why := p.ModeOf("web"); mode != AllowCompletion || why != MatchedByNoRule {
		t.Errorf("mode %s (%s), want %s (%s)", mode, why, AllowCompletion, MatchedByNoRule)
	}
}

func TestReadAFile(t *testing.T) {
	const file = `
evictionTimeoutInSeconds = "60"
systemNamespaces = "^(kube-system|monitoring)$"
deleteAfterTimeoutMinutes = 30
notReadyTimeoutMinutes = 7

[[userNamespaces]]
name = "runai-*"
mode = "Immediate"

[[userNamespaces]]
name = "*"
mode = "DeleteAfterTimeout"
`
	var c Config
	meta, err := toml.Decode(file, &c)
	if err != nil {
		t.Fatal(err)
	}
	if u := meta.Undecoded(); len(u) != 0 {
		t.Errorf("undecoded keys %v", u)
	}
	p := compile(t, c)
	got := []any{p.Grace, p.DeleteAfter, p.NotReady, p.IsSystem("monitoring"), p.IsSystem("monitoring-2")}
	want := []any{time.Minute, 30 * time.Minute, 7 * time.Minute, true, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

func TestProblemsNameTheirKeys(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"default", func(*Config) {}, nil},
		{"the least of each", func(c *Config) {
			c.EvictionTimeoutInSeconds, c.DeleteAfterTimeoutMinutes, c.NotReadyTimeoutMinutes = "1", 1, 1
		}, nil},
		{"timeout with a unit", func(c *Config) { c.EvictionTimeoutInSeconds = "30m" }, []string{`evictionTimeoutInSeconds: "30m"`}},
		{"timeout of zero", func(c *Config) { c.EvictionTimeoutInSeconds = "0" }, []string{`evictionTimeoutInSeconds: "0"`}},
		{"broken regexp", func(c *Config) { c.SystemNamespaces = "(" }, []string{"systemNamespaces: "}},
		{"no deadline", func(c *Config) { c.DeleteAfterTimeoutMinutes = 0 }, []string{"deleteAfterTimeoutMinutes: 0"}},
		{"no patience", func(c *Config) { c.NotReadyTimeoutMinutes = -1 }, []string{"notReadyTimeoutMinutes: -1"}},
		{"broken rules", func(c *Config) {
			c.UserNamespaces = []NamespaceRule{{"", Immediate}, {"a", "Now"}, {"[", Immediate}, {"a", Immediate}}
		}, []string{"userNamespaces[0].name: is empty", `userNamespaces[1].mode: "Now"`, `userNamespaces[2].name: "["`, `userNamespaces[3].name: "a" is already named by userNamespaces[1]`}},
		{"broken owner kinds", func(c *Config) {
			c.OwnerKinds = []OwnerRule{{"", Immediate}, {"A", "Now"}, {"nodesets.slinky.slurm.net", Immediate}, {"A", LeaveAlone}, {"B.", Immediate}}
		}, []string{`ownerKinds[0].kind: ""`, `ownerKinds[1].mode: "Now"`, `ownerKinds[2].kind: "nodesets.slinky.slurm.net"`,
			`ownerKinds[3].kind: "A" is already named by ownerKinds[1]`, `ownerKinds[4].kind: "B."`}},
		{"a namespace left alone", func(c *Config) { c.UserNamespaces = []NamespaceRule{{"a", LeaveAlone}} }, []string{`userNamespaces[0].mode: "LeaveAlone"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			tt.change(&c)
			err := c.Validate()
			if (err != nil) != (len(tt.want) > 0) {
				t.Fatalf("error %v, want %d problems", err, len(tt.want))
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}
