package decision

import (
	"errors"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// Forced stands in a verdict in place of a rule set's name when the event
// itself asked for the quarantine.
const Forced = "quarantineOverrides.force"

// maxDetail bounds the text of a verdict, in bytes.
const maxDetail = 1 << 10

// rule evaluates a fault of this machine that nothing has cleared.
func (f *fold) rule(r record.Record) {
	asks := f.policy.Match(r.Event)
	if o := r.Event.QuarantineOverrides; o != nil && o.Force {
		asks.Names = append([]string{Forced}, asks.Names...)
		asks.Effects.Cordon = true
	}
	reason := f.reason(r, asks)
	if reason == record.NoRuleMatched && asks.Undecided() {
		f.waiting, f.detail = WaitRule, cut(errors.Join(asks.Errors...).Error(), maxDetail)
		return
	}
	r = f.sentence(r, reason, asks)
	switch reason {
	case record.Matched:
		f.open = append(f.open, r)
		return
	case record.Held:
		if f.held == nil || r.Append < f.held.Append {
			f.held = &r
		}
	default:
	}
	f.evaluated = append(f.evaluated, r)
}

// reason decides. What is over, or not ours to act on, comes before what is
// asked for; a force stands in for the rules and for nothing else.
func (f *fold) reason(r record.Record, asks rulematch.Ruling) record.Reason {
	switch {
	case fault.CuredByReboot(r.Event.EffectiveAction()) && f.boots.Past(r):
		return record.CoveredByReboot
	case r.Event.QuarantineOverrides != nil && r.Event.QuarantineOverrides.Skip:
		return record.Skipped
	case f.Node.OptedOut:
		return record.OptedOut
	case !asks.Matched():
		return record.NoRuleMatched
	case f.policy.DryRun:
		return record.DryRun
	case f.session == "" && f.policy.HoldReason != "":
		return record.Held
	}
	return record.Matched
}

// sentence writes the verdict on a fault with what it asks for.
func (f *fold) sentence(r record.Record, reason record.Reason, asks rulematch.Ruling) record.Record {
	machine := fault.Of(r)
	r = f.verdict(r, reason)
	v := r.Status.QuarantineVerdict
	if fault.Machine(r.Node) == "" {
		if fault.Machine(machine) == "" {
			machine = f.Node.Identity
		}
		v.Machine = &machine
	}
	switch reason {
	case record.Matched, record.DryRun, record.Held:
		v.RuleSets, v.Effects = asks.Names, asks.Effects
	default:
	}
	if len(asks.Errors) > 0 {
		v.Detail = cut(errors.Join(asks.Errors...).Error(), maxDetail)
	}
	switch reason {
	case record.Held:
		v.Detail = f.policy.HoldReason
	case record.Matched:
		f.enter(&r)
	default:
	}
	return r
}

// enter puts a fault into the node's session, which it opens if there is none.
func (f *fold) enter(r *record.Record) {
	r.Status.NodeQuarantined = record.AlreadyQuarantined
	if f.session == "" {
		f.session = r.ID
		r.Status.NodeQuarantined = record.Quarantined
		f.opens = r
	}
	r.Status.Session = f.session
}

func (f *fold) verdict(r record.Record, reason record.Reason) record.Record {
	v := &record.Verdict{Reason: reason, At: f.now}
	if f.Node != nil {
		v.NodeBootID = f.Node.Identity.BootID
	}
	r.Status.QuarantineVerdict = v
	return r
}

// cut shortens a text to n bytes, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
