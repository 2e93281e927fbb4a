// Package authz decides who may say what at the front door: which peers may
// enter, whether a caller speaks for its own node or for all of them, which
// agent it speaks for, and to which agent a check name belongs. It does no I/O
// and reads no clock.
package authz

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/checkname"
)

// Caller is what is known of the one who sends a batch.
type Caller struct {
	// UID is the user of the peer process; nil when the transport cannot tell.
	UID *uint32
	// Account is the user name of a verified token, for example
	// system:serviceaccount:nvsentinel:syslog-health-monitor; empty without one.
	Account string
	// Pod and Node are the claims of a token that is bound to a pod.
	Pod, Node string
}

// Agent is what an operator says of one publisher.
type Agent struct {
	// Name is the agent's name in its events.
	Name string `toml:"name"`
	// Account alone may speak for the agent, with its token; empty means the
	// first account that does.
	Account string `toml:"account"`
	// ClusterWide agents may send events about any node; they need an account.
	ClusterWide bool `toml:"clusterWide"`
	// Checks are the check names that belong to the agent, as patterns of
	// path.Match: "SysLogs*". A name goes before a pattern of another agent.
	Checks []string `toml:"checks"`
	// UIDs are the users of tokenless peers that may speak for it; empty is any.
	UIDs []uint32 `toml:"uids"`
	// EarlierStrategyNumbers says that the agent is a monitor of the earlier
	// NVSentinel: on the wire its 1 is PROCESS, its 2 and 3 are PERSIST_ONLY.
	EarlierStrategyNumbers bool `toml:"earlierStrategyNumbers"`
}

// Policy is what an operator says of all callers.
type Policy struct {
	// Node is the connector's own.
	Node string
	// UIDs are the users of peers that may enter; empty is whoever the socket's
	// permissions let in.
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
	ForeignUID   Reason = "uid-not-allowed"
	NoToken      Reason = "token-missing"
	ForeignPod   Reason = "pod-of-another-node"
	Unbound      Reason = "token-not-bound"
	ForeignAgent Reason = "agent-of-another-account"
	ForeignCheck Reason = "check-of-another-agent"
)

// Reasons lists every reason, in a fixed order.
func Reasons() []Reason {
	return []Reason{ForeignUID, NoToken, ForeignPod, Unbound, ForeignAgent, ForeignCheck}
}

// Refusal is the error of a caller that may not do what it asks. Its text says
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
	for _, o := range checkname.Defaults() {
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
			problems = append(problems, fmt.Errorf("%s.name %q is given twice", where, a.Name))
		case a.ClusterWide && a.Account == "":
			problems = append(problems, fmt.Errorf("%s.account is empty: the cluster-wide agent %q needs one", where, a.Name))
		}
		seen[a.Name] = true
		// Cluster-wide agents of one process have its account.
		if other := accounts[a.Account]; a.Account != "" && other.Name != "" && !(a.ClusterWide && other.ClusterWide) {
			problems = append(problems, fmt.Errorf("%s.account %q is that of agent %q", where, a.Account, other.Name))
		}
		accounts[a.Account] = a
		for _, pattern := range a.Checks {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				problems = append(problems, fmt.Errorf("%s.checks: %q is not a pattern", where, pattern))
			}
		}
	}
	return errors.Join(problems...)
}

// Enter says whether the caller may send anything at all: its user, its token
// and, if that is bound to a pod, the pod's node.
func (p Policy) Enter(c Caller) *Refusal {
	switch {
	case len(p.UIDs) > 0 && (c.UID == nil || !slices.Contains(p.UIDs, *c.UID)):
		return refuse(ForeignUID, "user %s may not use this socket: add it to publishers.uids of the connector", user(c))
	case c.Account == "" && p.RequireToken:
		return refuse(NoToken, "this connector takes events only with a service account token: "+
			"project one for its audience into the publisher's pod and give the publisher its path")
	case c.Account != "" && c.Node != "" && c.Node != p.Node:
		return refuse(ForeignPod, "the token of %s belongs to a pod of node %q and this is the connector of %q: "+
			"use the socket of the pod's own node", c.Account, c.Node, p.Node)
	}
	if a := p.ofAccount(c.Account); a.ClusterWide && (c.Pod == "" || c.Node == "") {
		return refuse(Unbound, "the token of %s is not bound to a pod of this node: use a projected token", c.Account)
	}
	return nil
}

// ClusterWide says whether a caller that may enter speaks for all nodes.
func (p Policy) ClusterWide(c Caller) bool { return p.ofAccount(c.Account).ClusterWide }

// ClusterAgents are the names of the agents that speak for all nodes.
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
	owners := make([]checkname.Owner, len(p.Agents))
	for i, a := range p.Agents {
		owners[i] = checkname.Owner{Agent: a.Name, Checks: a.Checks}
	}
	owner, _ := checkname.Of(owners, check)
	return owner
}

func user(c Caller) string {
	if c.UID == nil {
		return "(unknown)"
	}
	return fmt.Sprint(*c.UID)
}
