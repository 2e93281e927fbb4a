package plan

import (
	"encoding/json"
	"slices"
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
	tried := slices.ContainsFunc(mine, func(r record.Record) bool { return len(trace(r)) > 0 })
	switch s.Reason { //nolint:exhaustive // every other step leaves the label alone
	case Nothing, WaitRecovery, WaitHuman:
		return settled(mine)
	case WaitTimedOut:
		return nodemark.RemediationFailed
	case Create:
		return nodemark.Remediating
	case WaitObject, WaitBackoff, WaitSymptoms, WaitPods, WaitClaim, ReadError, KindMissing:
		if tried {
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

// group is a repair object in the annotation that shows the newest per group.
type group struct {
	MaintenanceCR string    `json:"maintenanceCR"`
	CreatedAt     time.Time `json:"createdAt"`
	ActionName    string    `json:"actionName"`
}

// Annotation is the view of a session's newest objects that the Node shows;
// empty when there is none. Nothing is decided from it.
func Annotation(records []record.Record, session string) string {
	groups := map[string]group{}
	newest := map[string]int{}
	for _, r := range records {
		for _, a := range trace(r) {
			if a.Session == session && a.UID != "" && a.Ordinal > newest[a.Group] {
				newest[a.Group] = a.Ordinal
				groups[a.Group] = group{MaintenanceCR: a.Name, CreatedAt: a.SubmittedAt.UTC(), ActionName: string(a.Action)}
			}
		}
	}
	if session == "" || len(groups) == 0 {
		return ""
	}
	text, err := json.Marshal(map[string]any{"equivalenceGroups": groups})
	if err != nil {
		return ""
	}
	return string(text)
}
