// Package action knows the repairs: which object a recommended action asks for,
// how strong it is, how it is evaluated, how often it may be tried, and what a
// person has to do where no object can help. It does no I/O.
package action

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Action is one compiled repair.
type Action struct {
	Name record.Action
	GVK  schema.GroupVersionKind
	// Resource is the plural under which objects are read and written.
	Resource  string
	Namespace string
	// Group is the equivalence group, the unit of slots and attempts.
	Group string
	Rule  healthrule.Rule
	// UnknownTimeout is how long no verdict is waited for; 0 is for ever.
	UnknownTimeout time.Duration
	Attempts       Attempts
	// Backoff is the pause after the first failure; it doubles up to MaxBackoff.
	Backoff time.Duration
	// Rank is the strength: a higher one covers the lower ones.
	Rank int
	// Escalate is the action that follows when no attempt is left; empty leaves
	// the fault to a person.
	Escalate record.Action
	// SupersededBy are the only other groups whose repairs cover this action's
	// faults; empty is every repair as strong.
	SupersededBy []string
	// EntityScope is the type of the entities of which a repair is for one; empty is
	// for the machine.
	EntityScope string
	// Chain is the RepairChain that the repair is a run of; empty is none.
	Chain string
	// Template and Digest name the template an attempt was rendered from.
	Template string
	Digest   string

	template *template.Template
}

// MaxBackoff bounds the pause between two repairs.
const MaxBackoff = time.Hour

// Pause is the wait after the failures-th failed repair in a row.
func (a Action) Pause(failures int) time.Duration {
	d := a.Backoff
	for i := 1; i < failures && d < MaxBackoff; i++ {
		d *= 2
	}
	return min(d, MaxBackoff)
}

// GVR is the resource to read and write objects with.
func (a Action) GVR() schema.GroupVersionResource {
	return a.GVK.GroupVersion().WithResource(a.Resource)
}

// Policy is the set of configured repairs.
type Policy struct {
	actions map[record.Action]Action
}

// Of finds the repair of an action.
func (p Policy) Of(name record.Action) (Action, bool) {
	a, ok := p.actions[name]
	return a, ok
}

// All lists the repairs by name.
func (p Policy) All() []Action {
	var out []Action
	for _, name := range slices.Sorted(maps.Keys(p.actions)) {
		out = append(out, p.actions[name])
	}
	return out
}

// Warnings names what is legal in the configuration but probably not meant.
func (p Policy) Warnings() []string {
	var out []string
	for _, a := range p.All() {
		for _, w := range a.Rule.Warnings() {
			out = append(out, fmt.Sprintf("remediationActions.%q: %s", a.Name, w))
		}
		if a.Rule.SingleConditionType != "" && a.GVK.Group == janitorGroup && a.GVK.Kind != "GPUReset" {
			out = append(out, fmt.Sprintf("remediationActions.%q: a refused signal leaves %s Unknown permanently, use a healthRule that also reads SignalSent", a.Name, a.Rule.SingleConditionType))
		}
	}
	return out
}

// NeedsHuman reports whether an action is a person's by its kind: it asks for
// something, and nothing is configured that could do it.
func (p Policy) NeedsHuman(name record.Action) bool {
	_, ok := p.actions[name]
	return !ok && name != record.ActionNone && name != ""
}

// RequiresNoAction reports whether an action asks for no repair and for no person: NONE.
func (p Policy) RequiresNoAction(name record.Action) bool {
	_, ok := p.actions[name]
	return !ok && !p.NeedsHuman(name)
}

// Rank is the strength of an action; 0 for none and for a person's.
func (p Policy) Rank(name record.Action) int { return p.actions[name].Rank }

// RankReboot is the strength of a reboot: what it covers, a reboot cures.
var RankReboot = fault.Rank(record.ActionRestartVM)

// RankReplace is the strength from which a repair takes the machine away.
var RankReplace = fault.Rank(record.ActionReplaceVM)

func rankOf(name record.Action, configured *int) (int, error) {
	own := fault.Rank(name)
	switch {
	case own > 0 && configured != nil && *configured != own:
		return 0, fmt.Errorf("rank: %s has rank %d, not %d", name, own, *configured)
	case own > 0:
		return own, nil
	case name == record.ActionNone:
		return 0, fmt.Errorf("rank: %s requires no remediation", name)
	case configured == nil:
		return 0, fmt.Errorf("rank: is required, %s has no built-in rank", name)
	case *configured < 1:
		return 0, fmt.Errorf("rank: %d is less than 1", *configured)
	}
	return *configured, nil
}

// nodeInName is how much of a node's name an object's name keeps.
const nodeInName = 40

// ObjectName is the name of a slot's object: the same facts give the same name,
// so that creating it twice is impossible.
func ObjectName(node, machine, session, group string, ordinal int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{machine, session, group, strconv.Itoa(ordinal)}, "\x00")))
	return strings.TrimRight(node[:min(len(node), nodeInName)], ".") + "-" + hex.EncodeToString(sum[:4])
}

// nextSteps are what a person does about actions that no object can carry out.
var nextSteps = map[record.Action]string{
	record.ActionContactSupport: "collect a bug report from the node and open a case with the vendor's support",
	record.ActionRunFieldDiag:   "run the vendor's field diagnostics on the node and replace what fails",
	record.ActionRunDCGMEUD:     "run the DCGM extended utility diagnostics on the node and act on its report",
	record.ActionUnknown:        "inspect the node: the monitor recommends no action for the fault",
}

// NextStep is what a person has to do about a fault with this action.
func NextStep(name record.Action, node string) string {
	step, ok := nextSteps[name]
	if !ok {
		step = fmt.Sprintf("repair the node manually, or configure [remediationActions.%q]", name)
	}
	return fmt.Sprintf("%s requires manual intervention: %s. Node %s leaves quarantine when the fault is reported healthy or the node is released manually", name, step, node)
}
