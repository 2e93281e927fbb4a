// Package authz decides who may send what to the ingest endpoint: which peers may
// enter, whether a caller publishes events about its own node or about all nodes, as
// which agent it publishes, and to which agent a check name belongs. It does no I/O
// and reads no clock.
package authz

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Caller is what is known of the one who sends a batch.
type Caller struct {
	// UID is the user of the peer process; nil when the transport does not know it.
	UID *uint32
	// Account is the user name of a verified token, for example
	// system:serviceaccount:nvsentinel:syslog-health-monitor; empty without one.
	Account string
	// Pod and Node are the claims of a token that is bound to a pod.
	Pod, Node string
}

// Agent is what an operator configures for one publisher.
type Agent struct {
	// Name is the agent's name in its events.
	Name string `toml:"name"`
	// Account is the only account that may publish events of the agent, with its
	// token. Empty means the first account that does.
	Account string `toml:"account"`
	// ClusterWide agents may send events about any node; they need an account.
	ClusterWide bool `toml:"clusterWide"`
	// Checks are the check names that belong to the agent, as patterns of
	// path.Match: "SysLogs*". A name goes before a pattern of another agent.
	Checks []string `toml:"checks"`
	// UIDs are the users that may publish its events without a token. Empty admits any.
	UIDs []uint32 `toml:"uids"`
	// EarlierStrategyNumbers marks the agent as a monitor of the earlier NVSentinel, whose
	// messages use 1 for PROCESS, and 2 and 3 for PERSIST_ONLY.
	EarlierStrategyNumbers bool `toml:"legacyStrategyNumbers"`
}

// Policy is what an operator configures for all callers.
type Policy struct {
	// Node is the connector's own.
	Node string
	// UIDs are the users of peers that may connect. Empty admits every user that the
	// permissions of the socket admit.
	UIDs []uint32
	// RequireToken refuses callers without one.
	RequireToken bool
	Agents       []Agent
}

// Reason is why a caller was refused. It is the label value of the refusals
// counter.
type Reason string

// Reasons of a refusal.
const (
	// ForeignUID: the user of the calling process is not in `publishers.uids`, so the request is refused. Action:
	// add the user to `publishers.uids` of the connector if the process is a monitor that you run.
	ForeignUID Reason = "uid-not-allowed"
	// NoToken: the connector requires a token (`tokens = "required"`) and the request has none, so it is refused.
	// Action: project a service account token with the audience `platform-connector.nvsentinel.nvidia.com` into
	// the pod of the monitor, and set its path there.
	NoToken Reason = "token-missing"
	// ForeignPod: the token belongs to a pod of another node, so the request is refused. Action: have the monitor
	// use the socket of the connector on its own node.
	ForeignPod Reason = "pod-of-another-node"
	// Unbound: the account is that of an agent with `clusterWide = true` and its token is not bound to a pod, so
	// the request is refused. Action: use a projected service account token in place of a long-lived one.
	Unbound Reason = "token-not-bound"
	// ForeignAgent: the agent of the health event belongs to another account or user, so the event is refused.
	// Action: set `account` or `uids` of the agent in `[[publishers.agent]]`.
	ForeignAgent Reason = "agent-of-another-account"
	// ForeignCheck: the check of the health event belongs to another agent, so the event is refused. Action:
	// rename the check (that of a policy or an analyzer rule is its name), or add it to `checks` of the agent in
	// `[[publishers.agent]]`.
	ForeignCheck Reason = "check-of-another-agent"
)

// Reasons lists every reason, in a fixed order.
func Reasons() []Reason {
	return []Reason{ForeignUID, NoToken, ForeignPod, Unbound, ForeignAgent, ForeignCheck}
}

// Refusal is the error of a caller that may not do what it asks. Its text describes
// what to do.
type Refusal struct {
	Reason  Reason
	Problem string
}

// Error is the problem and its remedy.
func (r *Refusal) Error() string { return r.Problem }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// DefaultAgents are the publishers of this suite and their check names.
func DefaultAgents() []Agent {
	var out []Agent
	for _, o := range record.DefaultCheckOwners() {
		out = append(out, Agent{Name: o.Agent, Checks: o.Checks})
	}
	return out
}

// ValidateAgents joins everything that is wrong with a list of agents.
func ValidateAgents(agents []Agent) error {
	var problems []error
	seen, accounts := map[string]bool{}, map[string]Agent{}
	for i, a := range agents {
		where := fmt.Sprintf("agent[%d]", i)
		switch {
		case a.Name == "":
			problems = append(problems, fmt.Errorf("%s.name is empty", where))
		case seen[a.Name]:
			problems = append(problems, fmt.Errorf("%s.name %q is a duplicate", where, a.Name))
		case a.ClusterWide && a.Account == "":
			problems = append(problems, fmt.Errorf("%s.account is empty: set the service account of the cluster-wide agent %q", where, a.Name))
		}
		seen[a.Name] = true
		// Cluster-wide agents of one process have its account.
		if other := accounts[a.Account]; a.Account != "" && other.Name != "" && (!a.ClusterWide || !other.ClusterWide) {
			problems = append(problems, fmt.Errorf("%s.account %q is already used by agent %q", where, a.Account, other.Name))
		}
		accounts[a.Account] = a
		for _, pattern := range a.Checks {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				problems = append(problems, fmt.Errorf("%s.checks: %q is not a valid pattern", where, pattern))
			}
		}
	}
	return errors.Join(problems...)
}

// Enter decides whether the caller may send anything at all, by its user, its token
// and, if that is bound to a pod, the pod's node.
func (p Policy) Enter(c Caller) *Refusal {
	switch {
	case len(p.UIDs) > 0 && (c.UID == nil || !slices.Contains(p.UIDs, *c.UID)):
		return refuse(ForeignUID, "user %s is not allowed to use this socket: add it to publishers.uids of the connector", user(c))
	case c.Account == "" && p.RequireToken:
		return refuse(NoToken, "this connector accepts events only with a service account token: "+
			"project a token for its audience into the Pod of the publisher, and configure its path in the publisher")
	case c.Account != "" && c.Node != "" && c.Node != p.Node:
		return refuse(ForeignPod, "the token of %s belongs to a Pod of node %q, and this is the connector of %q: "+
			"use the socket of the node that the Pod runs on", c.Account, c.Node, p.Node)
	}
	if a := p.ofAccount(c.Account); a.ClusterWide && (c.Pod == "" || c.Node == "") {
		return refuse(Unbound, "the token of %s is not bound to a Pod of this node: use a projected token", c.Account)
	}
	return nil
}

// ClusterWide reports whether a caller that may enter publishes events about all nodes.
func (p Policy) ClusterWide(c Caller) bool { return p.ofAccount(c.Account).ClusterWide }

// ClusterAgents are the names of the agents that publish events about all nodes.
func (p Policy) ClusterAgents() []string {
	var out []string
	for _, a := range p.Agents {
		if a.ClusterWide {
			out = append(out, a.Name)
		}
	}
	return out
}

// EarlierAgents are the names of the agents with EarlierStrategyNumbers.
func (p Policy) EarlierAgents() []string {
	var out []string
	for _, a := range p.Agents {
		if a.EarlierStrategyNumbers {
			out = append(out, a.Name)
		}
	}
	return out
}

func (p Policy) ofAccount(account string) Agent {
	for _, a := range p.Agents {
		if account != "" && a.Account == account {
			return a
		}
	}
	return Agent{}
}

func (p Policy) named(agent string) Agent {
	for _, a := range p.Agents {
		if a.Name == agent {
			return a
		}
	}
	return Agent{}
}

// owner is the agent to which an operator gave the check, or empty.
func (p Policy) owner(check string) string {
	owners := make([]record.CheckOwner, len(p.Agents))
	for i, a := range p.Agents {
		owners[i] = record.CheckOwner{Agent: a.Name, Checks: a.Checks}
	}
	owner, _ := record.CheckOwnerOf(owners, check)
	return owner
}

func user(c Caller) string {
	if c.UID == nil {
		return "(unknown)"
	}
	return fmt.Sprint(*c.UID)
}

// Bounds of what is learned, so that no publisher can fill the disk. Names
// beyond them are accepted and belong to nobody: a fault is worth more than a
// claim.
const (
	// MaxChecks bounds the learned check names.
	MaxChecks = 1024
	// MaxAccounts bounds the learned accounts.
	MaxAccounts = 256
)

// Owners is what was learned from the events that were accepted: the first one that
// uses a name owns it. What an operator configures in a Policy takes precedence.
type Owners struct {
	// Checks is the agent of each check name.
	Checks map[string]string `json:"checks"`
	// Accounts is the service account of each agent that showed a token.
	Accounts map[string]string `json:"accounts"`
}

// with returns a copy of a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

// Speak decides whether the caller may publish as the agent about the check, and
// notes in the owners what is learned from it; learned is false when they
// are as they were. Nothing is noted of a refused one. The owners' maps are
// replaced, never changed: a copy of the owners stays as it is.
func (p Policy) Speak(o *Owners, c Caller, agent, check string) (learned bool, refusal *Refusal) {
	if refusal := p.speaker(*o, c, agent); refusal != nil {
		return false, refusal
	}
	owner := p.owner(check)
	if owner == "" {
		owner = o.Checks[check]
	}
	if owner != "" && owner != agent {
		return false, refuse(ForeignCheck, "check %q belongs to agent %q and not to %q: use another check name "+
			"(the check name of an object-monitor policy or an analyzer rule is its name), or assign it to %q in publishers.agent of the connector", check, owner, agent, agent)
	}
	if owner == "" && len(o.Checks) < MaxChecks {
		o.Checks = with(o.Checks, check, agent)
		learned = true
	}
	if p.named(agent).Account == "" && o.Accounts[agent] == "" && c.Account != "" && len(o.Accounts) < MaxAccounts {
		o.Accounts = with(o.Accounts, agent, c.Account)
		learned = true
	}
	return learned, nil
}

// speaker decides whether the caller may publish as the agent.
func (p Policy) speaker(o Owners, c Caller, agent string) *Refusal {
	known := p.named(agent)
	account := known.Account
	if account == "" {
		account = o.Accounts[agent]
	}
	switch {
	case account != "" && c.Account == "":
		return refuse(ForeignAgent, "agent %q belongs to %s: send the token of that account", agent, account)
	case account != "" && c.Account != account:
		return refuse(ForeignAgent, "agent %q belongs to %s and not to %s: configure the account in publishers.agent of the connector",
			agent, account, c.Account)
	case account == "" && c.Account != "":
		if other := p.agentOf(o, c.Account); other != "" {
			return refuse(ForeignAgent, "%s is the account of agent %q: configure it in publishers.agent of the connector to publish as %q",
				c.Account, other, agent)
		}
	case c.Account == "" && len(known.UIDs) > 0:
		for _, uid := range known.UIDs {
			if c.UID != nil && uid == *c.UID {
				return nil
			}
		}
		return refuse(ForeignAgent, "user %s is not allowed to publish as agent %q: add it to the uids of the agent in publishers.agent of the connector",
			user(c), agent)
	}
	return nil
}

// agentOf is the agent that has the account, or empty.
func (p Policy) agentOf(o Owners, account string) string {
	if a := p.ofAccount(account); a.Name != "" {
		return a.Name
	}
	for agent, of := range o.Accounts {
		if of == account {
			return agent
		}
	}
	return ""
}
