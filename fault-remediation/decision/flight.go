package decision

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// Pauses before facts are read again that nothing enqueues the node for.
const (
	soon     = 30 * time.Second
	watched  = 5 * time.Minute
	longTime = 10 * time.Minute
)

// Next decides what to do about a node now. PERSIST_ONLY records count for
// nothing, even if the view contains them.
func Next(v View, repairs action.Policy, policy Policy, now time.Time) Step {
	v.Records = record.Acting(v.Records)
	d := decision{v: v, repairs: repairs, policy: policy, now: now}
	if s, ok := newer(v.Records); ok {
		return s
	}
	if s, ok := d.forgive(); ok {
		return s
	}
	s := d.voiced(d.next())
	s.Label, s.RepeatOffender = d.label(s), d.repeatOffenderMark(s)
	if d.mayReturn() && s.After == 0 {
		s.After = longTime
	}
	if s.After == 0 && s.OnlyWaits() {
		s.After = d.nextOverdue()
	}
	return s
}

// decision carries the facts of one Next.
type decision struct {
	v       View
	repairs action.Policy
	policy  Policy
	now     time.Time
}

// elapsed is the time since began, measured for a period.
func (d decision) elapsed(began time.Time, period time.Duration) time.Duration {
	return remediation.Elapsed(began, period, d.now)
}

func (d decision) next() Step {
	cur, ok := Current(d.v.Records)
	if !ok {
		return d.choose(nil)
	}
	a, o := cur.Attempt, d.v.Object
	object := remediation.Object{KnownUID: a.UID, Presence: o.Presence, UID: o.UID, OwnMarks: createdFor(a, o), Refused: o.Refused != ""}
	switch object.Find() {
	case remediation.Hindered:
		return d.hindered(cur)
	case remediation.Refused:
		return d.end(cur, CreateRefused, StateCancelled, fmt.Sprintf("%s %s cannot be created: %s. Correct the template of %s and repair the node manually", a.Kind, a.Name, o.Refused, a.Action))
	case remediation.Missing:
		return d.reserved(cur)
	case remediation.Lost:
		return d.lost(cur)
	case remediation.Taken:
		return d.taken(cur)
	case remediation.Found:
		return d.recordUID(cur)
	case remediation.Recognized:
		if o.Deleting && o.Health.State == healthrule.Unhealthy { // its deletion's doing, or nobody knows
			return d.lost(cur)
		}
	}
	return d.evaluateHealth(cur)
}

// hindered waits for what keeps a reserved object from being created, and asks a person when
// that lasts.
func (d decision) hindered(cur Ref) Step {
	a, o, why := cur.Attempt, d.v.Object, unreadWhy(d.v.Object)
	message := fmt.Sprintf("%s %s: %s", a.Kind, a.Name, o.Health.Message)
	if why == ReadError { // whose message differs each time
		message = fmt.Sprintf("%s %s could not be read, see the log for the error", a.Kind, a.Name)
	}
	if d.overdue(cur.Record, why) {
		state := StateLost // it may exist, and have acted
		if why == CreateForbidden || why == WaitLease {
			state = StateCancelled
		}
		return d.end(cur, why, state, fmt.Sprintf("%s. The remediation could not begin within %s: correct the cause, and repair the node manually",
			message, d.policy.UnrepairedAfter))
	}
	return Step{Reason: why, After: soon, Waits: cur.Record.ID, Until: d.dueBy(cur.Record, why), Message: message}
}

func unreadWhy(o Object) Reason {
	if o.Unread == "" {
		return ReadError
	}
	return o.Unread
}

// createdFor reports whether the object was created for this attempt.
func createdFor(a record.Attempt, o Object) bool {
	return o.Session == a.Session && o.Group == a.Group && o.Ordinal == a.Ordinal
}

// reserved decides about a name without an object: it is created only if it
// would be chosen again now, else the name is released.
func (d decision) reserved(cur Ref) Step {
	r, a, n := cur.Record, cur.Attempt, d.v.Node
	if !record.Open(r) || r.Status.FaultRemediated != nil || (n.Presence == Present && n.Session != "" && n.Session != a.Session) {
		return d.release(cur, "the fault or its quarantine session has ended")
	}
	s := d.choose(&cur)
	switch s.Reason { //nolint:exhaustive // what is not handled here is done or waited for first
	case Nothing, WaitRecovery, WaitHuman, NoRepair:
		return d.release(cur, "a remediation is no longer required: "+string(s.Reason))
	case Reserved:
		if want := reservedAttempt(s, r.ID); want == nil || !sameRepair(*want, a) {
			return d.release(cur, "another remediation is required now")
		}
		return Step{Reason: Create, Create: &Creation{r, a}, Message: fmt.Sprintf("creating %s %s", a.Kind, a.Name)}
	}
	return s
}

// reservedAttempt is the attempt that a Reserved step would add to a record.
func reservedAttempt(s Step, id string) *record.Attempt {
	i := slices.IndexFunc(s.Writes, func(w Write) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	attempts := s.Writes[i].Status.Remediation.Attempts
	return &attempts[len(attempts)-1]
}

// sameRepair compares all that an object is made of but its ordinal.
func sameRepair(want, have record.Attempt) bool {
	boots := want.PriorBootID == have.PriorBootID || want.PriorBootID == "" || have.PriorBootID == ""
	return boots && want.Group == have.Group && want.Action == have.Action && want.Session == have.Session &&
		want.Machine == have.Machine && want.Kind == have.Kind && want.Chain == have.Chain && want.Namespace == have.Namespace
}

func (d decision) release(cur Ref, why string) Step {
	e := d.edit()
	e.close(cur, func(a *record.Attempt) {
		a.State, a.Reason, a.Message, a.SignalSent = StateCancelled, string(Release), why, false
	})
	e.cancelIfOver(cur.Record)
	return e.step(Release, fmt.Sprintf("%s %s is not created: %s", cur.Attempt.Kind, cur.Attempt.Name, why))
}

func (d decision) recordUID(cur Ref) Step {
	e := d.edit()
	e.attempt(cur, func(a *record.Attempt) {
		a.UID, a.State, a.Reason, a.Message = d.v.Object.UID, string(healthrule.Unknown), "Created", ""
		if at := d.v.Object.CreatedAt; !at.IsZero() {
			a.SubmittedAt = at.UTC()
		}
	})
	return e.step(RecordUID, fmt.Sprintf("%s %s exists", cur.Attempt.Kind, cur.Attempt.Name))
}

func (d decision) lost(cur Ref) Step {
	a := cur.Attempt
	message := fmt.Sprintf("%s %s was deleted before its outcome was recorded. Find out whether the node was repaired, then repair it or release it manually", a.Kind, a.Name)
	return d.end(cur, Lost, StateLost, message)
}

func (d decision) taken(cur Ref) Step {
	a := cur.Attempt
	message := fmt.Sprintf("%s %s exists but was created by another controller. Rename or delete it, and repair the node manually", a.Kind, a.Name)
	return d.end(cur, NameTaken, StateCancelled, message)
}

// end closes the attempt and leaves the record to a person, or cancels it when
// its fault is over. Nothing was sent for one that is cancelled.
func (d decision) end(cur Ref, why Reason, state, message string) Step {
	e := d.edit()
	e.close(cur, func(a *record.Attempt) {
		a.State, a.Reason, a.Message, a.SignalSent = state, string(why), message, a.SignalSent && state != StateCancelled
	})
	if !e.cancelIfOver(cur.Record) {
		e.human(cur.Record, why, message)
	}
	return e.step(why, message)
}

// evaluateHealth follows the verdict of the health rule.
func (d decision) evaluateHealth(cur Ref) Step {
	a := cur.Attempt
	timeout := action.DefaultUnknownTimeout
	if known, ok := d.repairs.Of(a.Action); ok {
		timeout = known.UnknownTimeout
	}
	v := remediation.VerdictTimeout{Since: a.SubmittedAt, Timeout: timeout}.Evaluate(d.v.Object.Health, d.now)
	switch v.Outcome {
	case remediation.Succeeded:
		return d.succeed(cur, v.Health)
	case remediation.TimedOut:
		return d.timedOut(cur, v.Health)
	case remediation.Failed:
		return d.fail(cur, v.Health)
	case remediation.Waiting:
	}
	after := watched
	if timeout > 0 {
		after = min(after, v.Left+time.Second)
	}
	why := WaitObject
	if d.v.Object.Presence == Unread {
		why, after = unreadWhy(d.v.Object), soon
	}
	return Step{Reason: why, After: after, Message: fmt.Sprintf("%s %s: %s %s", a.Kind, a.Name, v.Health.Reason, v.Health.Message)}
}

// timedOut asks a person once and goes on watching: the object may still act,
// so nothing else starts, and a late verdict still counts.
func (d decision) timedOut(cur Ref, health healthrule.Result) Step {
	a := cur.Attempt
	message := fmt.Sprintf("%s %s has %s. Find out why its controller does not finish it, or delete it and repair the node manually", a.Kind, a.Name, health.Message)
	if a.Reason == string(UnknownTimeout) {
		return Step{Reason: WaitTimedOut, After: longTime, Message: message}
	}
	e := d.edit()
	e.attempt(cur, func(a *record.Attempt) {
		a.Reason, a.Message, a.Steps = string(UnknownTimeout), message, d.v.Object.Steps
	})
	if record.Open(cur.Record) {
		e.human(cur.Record, UnknownTimeout, message)
	}
	return e.step(UnknownTimeout, message)
}

func (d decision) fail(cur Ref, health healthrule.Result) Step {
	o, why := d.v.Object, Fail
	if o.SessionOver {
		why = SessionOver
	}
	e := d.edit()
	e.close(cur, func(a *record.Attempt) {
		a.State, a.Reason, a.Message, a.SignalSent = string(healthrule.Unhealthy), health.Reason, health.Message, !o.Unsent
		switch {
		case o.SessionOver:
			a.State, a.Reason = StateCancelled, string(SessionOver)
		case o.Escalated:
			a.Reason = string(ChainEscalated)
		case o.Misconfigured:
			a.Reason = string(ChainMisconfigured)
		case o.OutcomeUnknown:
			a.State, a.Reason = StateLost, string(ChainUnknown)
		}
		a.Steps = o.Steps
	})
	e.cancelIfOver(cur.Record)
	return e.step(why, fmt.Sprintf("%s %s: %s %s", cur.Attempt.Kind, cur.Attempt.Name, health.Reason, health.Message))
}

// succeed closes the attempt and every open fault of its session that the
// repair explains, in one batch.
func (d decision) succeed(cur Ref, health healthrule.Result) Step {
	replaced := d.replacedBoot(cur.Attempt)
	e := d.edit()
	e.close(cur, func(a *record.Attempt) {
		a.State, a.Reason, a.Message = string(healthrule.Healthy), health.Reason, health.Message
		a.ReplacedBootID, a.SignalSent, a.Steps = replaced, !d.v.Object.Unsent, d.v.Object.Steps
	})
	e.remediated(cur.Record, record.OutcomeSucceeded, cur.Record.ID, Succeed, health.Message)
	for _, r := range d.v.Records {
		if r.ID != cur.Record.ID && record.Open(r) && r.Status.Session == cur.Attempt.Session &&
			record.Remediated(r.Status) != "true" && d.covers(cur.Attempt, replaced, r) {
			e.remediated(r, record.OutcomeCovered, cur.Record.ID, CoveredByRepair, fmt.Sprintf("superseded by %s %s", cur.Attempt.Kind, cur.Attempt.Name))
		}
	}
	return e.step(Succeed, fmt.Sprintf("%s %s: %s %s", cur.Attempt.Kind, cur.Attempt.Name, health.Reason, health.Message))
}

// covers reports whether a healthy repair explains an open fault of its session:
// not a stronger one, none for a person, and none seen under the new boot. A
// fault without a boot id must be older than the symptoms of the repair
// itself; a repair that replaced no boot explains its own group only.
func (d decision) covers(a record.Attempt, replaced string, r record.Record) bool {
	name, boot := r.Event.EffectiveAction(), r.Event.BootID()
	by, _ := d.repairs.Of(a.Action)
	known, ok := d.repairs.Of(name)
	same := ok && known.For(r).Group == a.Group && r.CreatedAt.Before(a.SubmittedAt)
	switch {
	case !d.repairs.Covers(a.Action, name):
		return false
	case d.repairs.Rank(a.Action) >= action.RankReplace:
		return true
	case by.EntityScope != "" && replaced == "":
		return same // of that one entity
	case boot == "":
		return r.Event.GeneratedTimestamp.Before(a.SubmittedAt.Add(-symptomsBefore))
	case replaced != "":
		// An earlier boot's fault that its end did not cure is as old as this one's.
		return boot == replaced || (d.v.Boots.Past(r) && r.CreatedAt.Before(a.SubmittedAt))
	}
	return same
}

// replacedBoot is the boot that a healthy repair is proven to have ended: the
// object, or the Node itself, reports another one since.
func (d decision) replacedBoot(a record.Attempt) string {
	prior, current := d.v.Object.PriorBoot, d.v.Object.ObservedBoot
	if prior == "" {
		prior = a.PriorBootID
	}
	n := d.v.Node
	if current == "" && n.Presence == Present && fault.Machine(n.Identity) == a.Machine {
		current = n.Identity.BootID
	}
	if prior == "" || current == "" || current == prior {
		return ""
	}
	return prior
}
