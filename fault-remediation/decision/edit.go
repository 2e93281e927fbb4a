package decision

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// edit collects the writes of one step; a record edited twice is written once.
type edit struct {
	now    time.Time
	writes []Write
}

func (d decision) edit() *edit { return &edit{now: d.now.UTC()} }

func (e *edit) step(why Reason, message string) Step {
	return Step{Reason: why, Message: message, Writes: e.writes}
}

// of is the status of a record as it will be written, with a trace of its own.
func (e *edit) of(r record.Record) *record.Status {
	i := slices.IndexFunc(e.writes, func(w Write) bool { return w.ID == r.ID })
	if i < 0 {
		status := r.Status
		rem := record.Remediation{Cause: r.ID}
		if r.Status.Remediation != nil {
			rem = *r.Status.Remediation
		}
		rem.Attempts, rem.Waiting = slices.Clone(rem.Attempts), nil
		status.Remediation = &rem
		e.writes = append(e.writes, Write{ID: r.ID, Revision: r.Revision, Status: status, ExpireAt: r.ExpireAt})
		i = len(e.writes) - 1
	}
	return &e.writes[i].Status
}

func (e *edit) attempt(cur Ref, change func(*record.Attempt)) {
	change(&e.of(cur.Record).Remediation.Attempts[cur.Index])
}

func (e *edit) close(cur Ref, change func(*record.Attempt)) {
	e.attempt(cur, func(a *record.Attempt) {
		change(a)
		a.FinishedAt = &e.now
	})
}

// cancelIfOver ends the trace of a record if its fault is over, and reports whether it is.
func (e *edit) cancelIfOver(r record.Record) bool {
	if record.Open(r) {
		return false
	}
	rem := e.of(r).Remediation
	if rem.Outcome == "" {
		rem.Outcome, rem.Reason, rem.Message = record.OutcomeCanceled, string(Cancel), "the fault has ended"
	}
	return true
}

// human leaves a record to a person.
func (e *edit) human(r record.Record, why Reason, message string) {
	s := e.of(r)
	no := false
	s.FaultRemediated = &no
	s.Remediation.Outcome, s.Remediation.Reason, s.Remediation.Message = record.OutcomeNeedsHuman, string(why), message
}

// escalate turns a record to the next action and records why.
func (e *edit) escalate(r record.Record, to record.Action, why string) Step {
	message := fmt.Sprintf("%s, escalating to %s", why, to)
	rem := e.of(r).Remediation
	rem.Action, rem.Reason, rem.Message = to, string(Escalate), message
	return e.step(Escalate, message)
}

// remediated records a repair that was evaluated as Healthy.
func (e *edit) remediated(r record.Record, how record.Outcome, cause string, why Reason, message string) {
	s := e.of(r)
	yes := true
	s.FaultRemediated, s.LastRemediationTimestamp = &yes, &e.now
	s.Remediation.Cause, s.Remediation.Outcome, s.Remediation.Reason, s.Remediation.Message = cause, how, string(why), message
}
