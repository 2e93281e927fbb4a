package decision

import (
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// label is the state label that fits a step; empty leaves the label alone:
// before the drain it is the drainer's, without a session it is nobody's.
func (d decision) label(s Step) nodemark.State {
	n := d.v.Node
	if n.Presence != Present || n.Session == "" {
		return ""
	}
	mine := only(d.v.Records, func(r record.Record) bool { return record.Open(r) && r.Status.Session == n.Session })
	if len(mine) == 0 {
		return ""
	}
	tried := attempts(mine)
	created := slices.ContainsFunc(tried, func(x Ref) bool { return x.Attempt.UID != "" })
	switch s.Reason { //nolint:exhaustive // every other step leaves the label alone
	case Nothing, WaitRecovery, WaitHuman, NoRepair:
		return settled(mine)
	case WaitTimedOut:
		return nodemark.RemediationFailed
	case Create:
		return nodemark.Remediating
	case WaitPods, WaitClaim: // a reserved name alone is no repair yet
		if created {
			return nodemark.Remediating
		}
	case WaitObject, WaitBackoff, WaitReady, WaitSymptoms, ReadError, KindMissing:
		if len(tried) > 0 {
			return nodemark.Remediating
		}
	}
	return ""
}

// settled is the label of a session in which no repair goes on.
func settled(mine []record.Record) nodemark.State {
	label := nodemark.State("")
	for _, r := range mine {
		switch {
		case record.Remediated(r.Status) == "false" || outcome(r) == record.OutcomeNeedsHuman:
			return nodemark.RemediationFailed
		case record.Remediated(r.Status) == "true":
			label = nodemark.RemediationSucceeded
		}
	}
	return label
}

// A Node shows maxCalls at most, each message cut to maxCallMessage bytes.
const (
	maxCalls       = 8
	maxCallMessage = 900
)

// Annotation is what the Node shows of a session: its newest object per group,
// with the one that is about to be created, and what a person is asked for;
// empty when there is neither. Nothing is decided from it.
func Annotation(records []record.Record, session string, creating *Creation) string {
	v := nodemark.Repairs{EquivalenceGroups: map[string]nodemark.RepairObject{}, NeedsHuman: calls(records, session)}
	newest := map[string]int{}
	for _, x := range attempts(records) {
		a := x.Attempt
		exists := a.UID != "" || (creating != nil && creating.Attempt.Name == a.Name)
		if a.Session == session && exists && a.Ordinal > newest[a.Group] {
			newest[a.Group] = a.Ordinal
			// The API server's times are whole seconds.
			at := a.SubmittedAt.UTC().Truncate(time.Second)
			v.EquivalenceGroups[a.Group] = nodemark.RepairObject{MaintenanceCR: a.Name, CreatedAt: at, ActionName: string(a.Action)}
		}
	}
	if session == "" {
		return ""
	}
	return v.Text()
}

// calls are the open records of a session that need a person.
func calls(records []record.Record, session string) []nodemark.Call {
	var out []nodemark.Call
	for _, r := range records {
		if record.Open(r) && r.Status.Session == session && outcome(r) == record.OutcomeNeedsHuman && len(out) < maxCalls {
			rem := r.Status.Remediation
			message := strings.ToValidUTF8(rem.Message[:min(len(rem.Message), maxCallMessage)], "")
			out = append(out, nodemark.Call{Record: r.ID, Action: string(record.RepairAction(r)), Reason: rem.Reason, Message: message})
		}
	}
	return out
}

// NewCalls are the calls of an annotation that an earlier one lacks: those that
// were not reported yet. An annotation that cannot be read reported nothing.
func NewCalls(before, after string) []nodemark.Call {
	reported := nodemark.ParseRepairs(before).NeedsHuman
	return only(nodemark.ParseRepairs(after).NeedsHuman, func(c nodemark.Call) bool { return !slices.Contains(reported, c) })
}
