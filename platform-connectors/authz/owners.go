package authz

import "maps"

// Bounds of what is learned, so that no publisher can fill the disk. Names
// beyond them are accepted and belong to nobody: a fault is worth more than a
// claim.
const (
	// MaxChecks bounds the learned check names.
	MaxChecks = 1024
	// MaxAccounts bounds the learned accounts.
	MaxAccounts = 256
)

// Owners is what was learned from the events that were accepted: whoever uses a
// name first has it. What an operator said in a Policy goes before it.
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

// Speak says whether the caller may speak as the agent about the check, and
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
		return false, refuse(ForeignCheck, "check %q belongs to agent %q, not to %q: use another check name "+
			"(that of an object-monitor policy or an analyzer rule is its name), or give it to %q in publishers.agent of the connector", check, owner, agent, agent)
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

// speaker says whether the caller may speak as the agent.
func (p Policy) speaker(o Owners, c Caller, agent string) *Refusal {
	known := p.named(agent)
	account := known.Account
	if account == "" {
		account = o.Accounts[agent]
	}
	switch {
	case account != "" && c.Account == "":
		return refuse(ForeignAgent, "agent %q is that of %s: send the account's token", agent, account)
	case account != "" && c.Account != account:
		return refuse(ForeignAgent, "agent %q is that of %s, not of %s: name the account in publishers.agent of the connector",
			agent, account, c.Account)
	case account == "" && c.Account != "":
		if other := p.agentOf(o, c.Account); other != "" {
			return refuse(ForeignAgent, "%s is the account of agent %q: name it in publishers.agent of the connector to let it be %q",
				c.Account, other, agent)
		}
	case c.Account == "" && len(known.UIDs) > 0:
		for _, uid := range known.UIDs {
			if c.UID != nil && uid == *c.UID {
				return nil
			}
		}
		return refuse(ForeignAgent, "user %s may not speak for agent %q: add it to the agent's uids in publishers.agent of the connector",
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
