package nodeconnector

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
)

// maxVerdictLife bounds how long a positive verdict about a token may be
// remembered: for that long a withdrawn account still gets in.
const maxVerdictLife = 10 * time.Minute

// Publishers is who may send what.
type Publishers struct {
	// Tokens is off, optional or required.
	Tokens string `toml:"tokens" bounds:"off, optional, required" flag:"publisher-tokens" usage:"service account tokens of publishers: off (ignored), optional (checked when given) or required"`
	// Audience is the one that tokens must be for.
	Audience string `toml:"audience" flag:"publisher-token-audience" usage:"audience of the publishers' tokens"`
	// VerdictLife is how long a positive verdict about a token is remembered.
	VerdictLife time.Duration `toml:"verdictLife" flag:"publisher-token-verdict-life" usage:"how long a token that was found valid is not asked about again"`
	// UIDs are the users that may use the socket; empty is whoever its
	// permissions let in.
	UIDs []uint32 `toml:"uids"`
	// Agents replaces the list of known agents, authz.DefaultAgents.
	Agents []authz.Agent `toml:"agent"`
}

// DefaultPublishers checks a token that is given.
func DefaultPublishers() Publishers {
	return Publishers{Tokens: authn.TokensOptional, Audience: authn.Audience, VerdictLife: 2 * time.Minute}
}

// Validate joins everything that is wrong; kubernetes says whether tokens can be
// verified.
func (p Publishers) Validate(kubernetes bool) error {
	var problems []error
	if !slices.Contains([]string{authn.TokensOff, authn.TokensOptional, authn.TokensRequired}, p.Tokens) {
		problems = append(problems, fmt.Errorf("publishers.tokens (--publisher-tokens) %q is not off, optional or required", p.Tokens))
	}
	if p.Tokens == authn.TokensRequired && !kubernetes {
		problems = append(problems, errors.New("publishers.tokens (--publisher-tokens) is required, but without kubernetes (--kubernetes) none can be verified"))
	}
	if p.Audience == "" {
		problems = append(problems, errors.New("publishers.audience (--publisher-token-audience) is empty"))
	}
	if p.VerdictLife <= 0 || p.VerdictLife > maxVerdictLife {
		problems = append(problems, fmt.Errorf("publishers.verdictLife (--publisher-token-verdict-life) %s is not between 0 and %s", p.VerdictLife, maxVerdictLife))
	}
	if err := authz.ValidateAgents(p.Agents); err != nil {
		problems = append(problems, fmt.Errorf("publishers: %w", err))
	}
	return errors.Join(problems...)
}

// Policy is what the publishers' part of the configuration allows at the
// connector of a node.
func (p Publishers) Policy(node string) authz.Policy {
	agents := p.Agents
	if agents == nil {
		agents = authz.DefaultAgents()
	}
	return authz.Policy{Node: node, UIDs: p.UIDs, RequireToken: p.Tokens == authn.TokensRequired, Agents: agents}
}
