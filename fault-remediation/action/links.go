package action

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Values of onFailure.
const (
	onFailureStop     = "stop"
	onFailureEscalate = "escalate"
)

// onFailure reads "stop" or "escalate NAME"; stop is no action.
func onFailure(text string) (record.Action, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 0, len(words) == 1 && words[0] == onFailureStop:
		return "", nil
	case len(words) == 2 && words[0] == onFailureEscalate:
		return actionName(words[1]), nil
	}
	return "", fmt.Errorf("onFailure: %q is not %q or \"%s <action>\"", text, onFailureStop, onFailureEscalate)
}

// checkLinks checks what actions state about each other.
func (p Policy) checkLinks() []error {
	var problems []error
	for _, a := range p.All() {
		problems = append(problems, p.checkEscalation(a)...)
		for _, group := range a.SupersededBy {
			if err := p.checkSuperseding(a, group); err != nil {
				problems = append(problems, fmt.Errorf("remediationActions.%q: supersedingEquivalenceGroups: %w", a.Name, err))
			}
		}
	}
	return problems
}

// checkEscalation wants a target in another group that is at least as strong,
// and a chain with an end.
func (p Policy) checkEscalation(a Action) []error {
	if a.Escalate == "" {
		return nil
	}
	problem := func(format string, args ...any) []error {
		return []error{fmt.Errorf("remediationActions.%q: onFailure: "+format, append([]any{a.Name}, args...)...)}
	}
	to, known := p.Of(a.Escalate)
	switch {
	case !known:
		return problem("%s is not configured", a.Escalate)
	case to.Group == a.Group:
		return problem("%s has the same equivalence group %s, so its attempts are used up too", to.Name, to.Group)
	case to.Rank < a.Rank:
		return problem("%s (rank %d) is weaker than %s (rank %d)", to.Name, to.Rank, a.Name, a.Rank)
	}
	seen := []record.Action{a.Name}
	for next := to; next.Escalate != ""; next = p.actions[next.Escalate] {
		if slices.Contains(seen, next.Name) {
			return problem("escalation loop: %v", append(seen, next.Name))
		}
		seen = append(seen, next.Name)
	}
	return nil
}

func (p Policy) checkSuperseding(a Action, group string) error {
	if group == a.Group {
		return fmt.Errorf("%q is the action's own equivalence group", group)
	}
	strongest := 0
	for _, other := range p.actions {
		if other.Group == group {
			strongest = max(strongest, other.Rank)
		}
	}
	switch {
	case strongest == 0:
		return fmt.Errorf("%q is not the equivalenceGroup of a configured action", group)
	case strongest < a.Rank:
		return fmt.Errorf("%q (rank %d) is weaker than %s (rank %d)", group, strongest, a.Name, a.Rank)
	}
	return nil
}

// Covers reports whether a successful repair by one action cures what another
// asks for: it is as strong, and of the other's own group, of a superseding
// one, or takes the machine away. What needs a person is never covered.
func (p Policy) Covers(by, name record.Action) bool {
	with, asked := p.actions[by], p.actions[name]
	switch {
	case p.NeedsHuman(name) || asked.Rank > with.Rank:
		return false
	case len(asked.SupersededBy) == 0 || with.Rank >= RankReplace:
		return true
	}
	return with.Group == asked.Group || slices.Contains(asked.SupersededBy, with.Group)
}

// CuredByReboot reports whether a fault with this action is over when its boot is, regardless
// of who ended it: the wire's own actions up to a reboot, and custom ones of that rank that
// name no superseding groups.
func (p Policy) CuredByReboot(name record.Action) bool {
	a, known := p.Of(name)
	return known && a.Rank <= RankReboot && (fault.CuredByReboot(name) || len(a.SupersededBy) == 0)
}
