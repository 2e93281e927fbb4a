package authz

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	accountA = "system:serviceaccount:nvsentinel:a"
	accountB = "system:serviceaccount:nvsentinel:b"
	accountW = "system:serviceaccount:nvsentinel:wide"
)

func policy() Policy {
	return Policy{Node: "gpu-7", Agents: []Agent{
		{Name: "known", Account: accountA, Checks: []string{"Known*"}},
		{Name: "wide", Account: accountW, ClusterWide: true, Checks: []string{"CSPMaintenance"}},
		{Name: "rooted", UIDs: []uint32{0}},
	}}
}

func TestEnter(t *testing.T) {
	bound := func(account, node string) Caller { return Caller{Account: account, Pod: "uid", Node: node} }
	tests := map[string]struct {
		change func(*Policy)
		caller Caller
		want   Reason
		wide   bool
	}{
		"anybody":                        {caller: Caller{}},
		"a listed user":                  {func(p *Policy) { p.UIDs = []uint32{1, 2} }, Caller{UID: new(uint32(2))}, "", false},
		"another user":                   {func(p *Policy) { p.UIDs = []uint32{1, 2} }, Caller{UID: new(uint32(3))}, ForeignUID, false},
		"an unknown user where listed":   {func(p *Policy) { p.UIDs = []uint32{0} }, Caller{}, ForeignUID, false},
		"a token helps no foreign user":  {func(p *Policy) { p.UIDs = []uint32{1} }, Caller{UID: new(uint32(3)), Account: accountA}, ForeignUID, false},
		"no token where required":        {func(p *Policy) { p.RequireToken = true }, Caller{}, NoToken, false},
		"a token where required":         {func(p *Policy) { p.RequireToken = true }, Caller{Account: accountB}, "", false},
		"a Pod of this node":             {nil, bound(accountB, "gpu-7"), "", false},
		"a pod of another node":          {nil, bound(accountB, "gpu-8"), ForeignPod, false},
		"cluster-wide":                   {nil, bound(accountW, "gpu-7"), "", true},
		"cluster-wide of another node":   {nil, bound(accountW, "gpu-8"), ForeignPod, false},
		"cluster-wide without a pod":     {nil, Caller{Account: accountW, Node: "gpu-7"}, Unbound, false},
		"cluster-wide without a node":    {nil, Caller{Account: accountW, Pod: "uid"}, Unbound, false},
		"an account that is not listed":  {nil, bound("system:serviceaccount:evil:wide", "gpu-7"), "", false},
		"without a token not cluster...": {nil, Caller{Pod: "uid", Node: "gpu-7"}, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policy()
			if tc.change != nil {
				tc.change(&p)
			}
			refusal := p.Enter(tc.caller)
			if got := reason(refusal); got != tc.want {
				t.Fatalf("refused for %q, want %q", got, tc.want)
			}
			if refusal == nil && p.ClusterWide(tc.caller) != tc.wide {
				t.Errorf("cluster-wide: %v", !tc.wide)
			}
		})
	}
}

func reason(r *Refusal) Reason {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestSpeak(t *testing.T) {
	none, a, b, w := Caller{}, Caller{Account: accountA}, Caller{Account: accountB}, Caller{Account: accountW}
	tests := map[string]struct {
		owners       Owners
		caller       Caller
		agent, check string
		want         Reason
		after        Owners // only what is learned
	}{
		"a new agent and check": {
			Owners{}, none, "x", "X", "", Owners{Checks: map[string]string{"X": "x"}},
		},
		"a new agent with a token": {
			Owners{}, b, "x", "X", "", Owners{Checks: map[string]string{"X": "x"}, Accounts: map[string]string{"x": accountB}},
		},
		"a learned check of its agent": {
			Owners{Checks: map[string]string{"X": "x"}}, none, "x", "X", "", Owners{},
		},
		"a learned check of another agent": {
			Owners{Checks: map[string]string{"X": "x"}}, none, "y", "X", ForeignCheck, Owners{},
		},
		"a given check of another agent": {
			Owners{}, none, "x", "KnownProblem", ForeignCheck, Owners{},
		},
		"a given check goes before a learned one": {
			Owners{Checks: map[string]string{"KnownProblem": "x"}}, a, "known", "KnownProblem", "", Owners{},
		},
		"a given agent without its token":    {Owners{}, none, "known", "KnownProblem", ForeignAgent, Owners{}},
		"a given agent with another account": {Owners{}, b, "known", "KnownProblem", ForeignAgent, Owners{}},
		"an account that is another agent's": {Owners{}, a, "x", "X", ForeignAgent, Owners{}},
		"a learned agent without its token": {
			Owners{Accounts: map[string]string{"x": accountB}}, none, "x", "X", ForeignAgent, Owners{},
		},
		"a learned agent with another account": {
			Owners{Accounts: map[string]string{"x": accountB}}, Caller{Account: "c"}, "x", "X", ForeignAgent, Owners{},
		},
		"a learned account as another agent": {
			Owners{Accounts: map[string]string{"x": accountB}}, b, "y", "Y", ForeignAgent, Owners{},
		},
		"a cluster-wide agent without token":  {Owners{}, none, "wide", "CSPMaintenance", ForeignAgent, Owners{}},
		"a cluster-wide agent":                {Owners{}, w, "wide", "CSPMaintenance", "", Owners{}},
		"an agent of root by root":            {Owners{}, Caller{UID: new(uint32(0))}, "rooted", "R", "", Owners{Checks: map[string]string{"R": "rooted"}}},
		"an agent of root by somebody else":   {Owners{}, Caller{UID: new(uint32(7))}, "rooted", "R", ForeignAgent, Owners{}},
		"an agent of root by an unknown user": {Owners{}, none, "rooted", "R", ForeignAgent, Owners{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			given := tc.owners
			l := tc.owners
			learned, refusal := policy().Speak(&l, tc.caller, tc.agent, tc.check)
			if got := reason(refusal); got != tc.want {
				t.Fatalf("refused for %q (%v), want %q", got, refusal, tc.want)
			}
			if learned != (tc.after.Checks != nil || tc.after.Accounts != nil) {
				t.Errorf("learned: %v", learned)
			}
			want := Owners{Checks: merge(given.Checks, tc.after.Checks), Accounts: merge(given.Accounts, tc.after.Accounts)}
			if diff := cmp.Diff(want, Owners{merge(l.Checks), merge(l.Accounts)}); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(given, tc.owners); diff != "" {
				t.Errorf("the owners that were given changed (-want +got):\n%s", diff)
			}
		})
	}
}

func merge(parts ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, p := range parts {
		maps.Copy(out, p)
	}
	return out
}

// TestANameGoesBeforeAPattern of another agent, whichever is listed first.
func TestANameGoesBeforeAPattern(t *testing.T) {
	agents := []Agent{{Name: "gpu", Checks: []string{"Gpu*"}}, {Name: "counts", Checks: []string{"GpuCountMismatch"}}, {Name: "late", Checks: []string{"*"}}}
	for range agents {
		agents = append(agents[1:], agents[0])
		p := Policy{Agents: agents}
		for check, want := range map[string]string{"GpuCountMismatch": "counts", "GpuCount": "gpu or late"} {
			for _, a := range agents {
				_, refusal := p.Speak(&Owners{}, Caller{}, a.Name, check)
				if may := refusal == nil; may && !strings.Contains(want, a.Name) || !may && want == a.Name {
					t.Errorf("%v: %s may say %s: %v", agents, a.Name, check, may)
				}
			}
		}
	}
}

func TestLearnedPublishersAreBounded(t *testing.T) {
	var l Owners
	for i := range MaxChecks + 10 {
		name := strings.Repeat("x", i+1)
		if _, refusal := policy().Speak(&l, Caller{Account: name}, name, name); refusal != nil {
			t.Fatalf("name %d is refused: %v", i, refusal)
		}
	}
	if len(l.Checks) != MaxChecks || len(l.Accounts) != MaxAccounts {
		t.Errorf("%d checks and %d accounts are learned", len(l.Checks), len(l.Accounts))
	}
}

func TestValidateAgents(t *testing.T) {
	if err := ValidateAgents(DefaultAgents()); err != nil {
		t.Errorf("the default: %v", err)
	}
	err := ValidateAgents([]Agent{
		{Name: ""}, {Name: "x", Account: "u"}, {Name: "x"}, {Name: "w", ClusterWide: true},
		{Name: "y", Account: "u"}, {Name: "z", Checks: []string{"["}},
	})
	want := `agent[0].name is empty
agent[2].name "x" is a duplicate
agent[3].account is empty: set the service account of the cluster-wide agent "w"
agent[4].account "u" is already used by agent "x"
agent[5].checks: "[" is not a valid pattern`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestClusterWideAgentsShareAnAccount: of several agents of one process each may speak, and
// none of them for an agent of another account. No agent of a node shares with them.
func TestClusterWideAgentsShareAnAccount(t *testing.T) {
	agents := []Agent{
		{Name: "one", Account: accountW, ClusterWide: true, Checks: []string{"One"}},
		{Name: "two", Account: accountW, ClusterWide: true, Checks: []string{"Two"}},
		{Name: "node", Account: accountA},
	}
	if err := ValidateAgents(agents); err != nil {
		t.Error(err)
	}
	p, w := Policy{Node: "gpu-7", Agents: agents}, Caller{Account: accountW, Pod: "uid", Node: "gpu-7"}
	for agent, want := range map[string]Reason{"one": "", "two": "", "node": ForeignAgent, "another": ForeignAgent} {
		if _, refusal := p.Speak(&Owners{}, w, agent, "Anything"); reason(refusal) != want {
			t.Errorf("as %s it is refused for %q, want %q", agent, reason(refusal), want)
		}
	}
	if _, refusal := p.Speak(&Owners{}, w, "one", "Two"); reason(refusal) != ForeignCheck || !p.ClusterWide(w) {
		t.Errorf("with another's check it is refused for %q; cluster-wide: %t", reason(refusal), p.ClusterWide(w))
	}
	for _, wide := range []bool{true, false} {
		shared := append(slices.Clone(agents), Agent{Name: "third", Account: accountW, ClusterWide: wide})
		if err := ValidateAgents(shared); (err == nil) != wide {
			t.Errorf("cluster-wide %t: %v", wide, err)
		}
	}
}
