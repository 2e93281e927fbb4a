// Package remediation decides about the life of a repair object, no matter who wants the repair:
// whether the object is still to be created, is the one that was asked for, is lost or another's,
// and what its health rule evaluates to until its time is up.
//
// A repair object acts once. Its name follows from what it is for, so that it cannot be
// created twice, and who wants it remembers its uid as soon as it was seen. A run with
// several steps has one such object for each step.
//
// The package is pure. The caller reads and writes the object, and keeps what is
// remembered of it where it survives the caller.
package remediation

import (
	"time"

	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// Presence is what reading an object showed.
type Presence int

// Presences. The zero value is Unread.
const (
	// Unread: the read failed, which shows nothing about the object.
	Unread Presence = iota
	// Present: an object has the name.
	Present
	// Absent is certain.
	Absent
)

// Object is what is remembered of a repair object, and what was seen under its name.
type Object struct {
	// KnownUID is the uid that is remembered; empty until the object was seen.
	KnownUID string
	// Again: an object that was deleted is created again, since it does not act.
	Again bool

	Presence Presence
	UID      string
	// OwnMarks: it bears the marks of what the object is for.
	OwnMarks bool
	// Refused: the API server will never accept the object.
	Refused bool
}

// Finding is what an object turns out to be.
type Finding string

// Findings.
const (
	// Hindered: nothing is known of an object that was never seen: it may exist.
	Hindered Finding = "Hindered"
	// Refused: it can never be created.
	Refused Finding = "Refused"
	// Missing: it has to be created.
	Missing Finding = "Missing"
	// Found: it exists, and its uid is to be remembered.
	Found Finding = "Found"
	// Taken: the name is another's.
	Taken Finding = "Taken"
	// Lost: it existed and acts once, and is gone. Nobody knows what it has done.
	Lost Finding = "Lost"
	// Recognized: it is the one that is remembered, or could not be read this time.
	Recognized Finding = "Known"
)

// Find returns what an object turns out to be.
func (o Object) Find() Finding {
	switch {
	case o.Presence == Unread && o.KnownUID == "":
		return Hindered
	case o.Presence == Unread:
		return Recognized
	case o.Refused:
		return Refused
	case o.Presence == Present && o.KnownUID != "" && o.UID == o.KnownUID:
		return Recognized
	case o.KnownUID != "" && !o.Again:
		return Lost
	case o.Presence == Absent:
		return Missing
	case o.OwnMarks:
		return Found
	}
	return Taken
}

// Outcome is what follows from the health of an object.
type Outcome string

// Outcomes.
const (
	// Waiting: there is no verdict yet.
	Waiting Outcome = "Waiting"
	// Succeeded and Failed: the health rule evaluates to Healthy or Unhealthy.
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
	// TimedOut: there is no verdict, and the time for one is up. The object may still act.
	TimedOut Outcome = "TimedOut"
)

// Verdict is an outcome with its reason.
type Verdict struct {
	Outcome Outcome
	// Health is that of the object; Unhealthy when its time is up.
	Health healthrule.Result
	// Left is the time until the object's time is up, while there is no verdict; 0 is never.
	Left time.Duration
}

// VerdictTimeout is how long an object may be without a verdict.
type VerdictTimeout struct {
	// Since is when that began. It has to be set: the time since the zero time is over.
	Since time.Time
	// Timeout of 0 waits for ever.
	Timeout time.Duration
}

// Evaluate returns what follows from the health of an object at a time.
func (vt VerdictTimeout) Evaluate(health healthrule.Result, now time.Time) Verdict {
	v := Verdict{Outcome: Waiting, Health: health}
	switch health.State {
	case healthrule.Healthy:
		v.Outcome = Succeeded
	case healthrule.Unhealthy:
		v.Outcome = Failed
	case healthrule.Unknown:
		if vt.Timeout <= 0 {
			break
		}
		age := Elapsed(vt.Since, vt.Timeout, now)
		if v.Health = health.After(age, vt.Timeout); v.Health.State == healthrule.Unhealthy {
			v.Outcome = TimedOut
			break
		}
		v.Left = vt.Timeout - age
	}
	return v
}
