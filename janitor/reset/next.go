package reset

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/internal/remediation"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// Off is the value of a label of a service that is not to run.
const Off = "false"

// Bounds of the time that a Job takes besides its own.
const (
	// createWithin is how long after its note a Job may still be created: one that is
	// absent later may have run and been removed.
	createWithin = 2 * time.Minute
	// landsWithin is how long the request of a janitor that died may take to arrive.
	landsWithin = time.Minute
	// endsWithin is what a Job's end may take after its deadline.
	endsWithin = time.Minute
)

// Next returns the next step of a GPUReset.
func Next(v View, p Policy, now time.Time) repair.Verdict {
	o := v.Object
	switch {
	case o.Completed:
		return repair.Ending(repair.Object{
			Completed: true, CompletedAt: o.CompletedAt, Deleting: o.Deleting, Finalizer: o.Finalizer,
		}, p.Policy, now)
	case o.Deleting:
		return deleted(v, p, now)
	case o.Started.IsZero() || !o.Finalizer:
		return repair.Verdict{Step: repair.Begin, Reason: repair.NotStarted}
	case o.Concluded:
		return restoring(v, p, now)
	case o.TeardownAt.IsZero() && !v.Node.Exists:
		return conclude(repair.NodeAbsent)
	case o.Machine.BootID == "" && v.Node.Exists && v.Node.Identity.BootID == "":
		return waiting(v, p, now, repair.BootUnknown)
	case o.Machine.BootID == "" && v.Node.Exists:
		return repair.Verdict{Step: repair.Begin, Reason: repair.NoIntent}
	}
	if verdict, decided := unfit(v, p, now); decided {
		return verdict
	}
	switch {
	case o.TeardownAt.IsZero():
		return opening(v, p, now)
	case o.JobAt.IsZero():
		return tearing(v, p, now)
	}
	return working(v, p, now)
}

// unfit is a Node that is away, another machine's, or rebooted.
func unfit(v View, p Policy, now time.Time) (repair.Verdict, bool) {
	o, n := v.Object, v.Node
	if !n.Exists {
		return waiting(v, p, now, repair.NodeAbsent), true
	}
	switch fault.Compare(o.Machine, n.Identity) {
	case fault.AnotherMachine:
		return conclude(repair.AnotherMachine), true
	case fault.Undecidable:
		return waiting(v, p, now, repair.MachineUnknown), true
	case fault.SameMachine:
	}
	switch {
	case n.Identity.BootID == "":
		return waiting(v, p, now, repair.BootUnknown), true
	case n.Identity.BootID == o.Machine.BootID:
		return repair.Verdict{}, false
	case pending(v, p, now) > 0:
		// Its pod may begin after the boot.
		return wait(p, pending(v, p, now), JobRuns), true
	case !n.Ready:
		return waiting(v, p, now, repair.NotReady), true
	}
	return conclude(repair.BootChanged), true
}

// opening is a reset that has not touched anything.
func opening(v View, p Policy, now time.Time) repair.Verdict {
	o, n := v.Object, v.Node
	if verdict, closed := gated(v); closed {
		if verdict.Step == repair.Wait {
			return waiting(v, p, now, verdict.Reason)
		}
		return verdict
	}
	switch {
	case p.Manual && o.ResetManually:
		return conclude(ResetManually)
	case p.Manual:
		return repair.Verdict{Step: repair.Wait, Reason: repair.Manual, Again: p.Poll}
	case n.Down != "":
		return waiting(v, p, now, LeftDown)
	case remaining(o.Started, p.Timeout, now) <= 0:
		return conclude(repair.TimeUp)
	}
	return repair.Verdict{Step: Note, Reason: NotTornDown}
}

// gated is a node that may not be touched, or not yet: what holds for every kind.
// Its Wait has no time.
func gated(v View) (repair.Verdict, bool) {
	o, n := v.Object, v.Node
	untouched := o.TeardownAt.IsZero()
	switch reason, over := repair.Over(o.Session, n.Node); {
	case n.Claim != "" && n.Claim != o.UID && untouched:
		return repair.Verdict{Step: repair.Wait, Reason: repair.Busy}, true
	case n.Claim != "" && n.Claim != o.UID:
		return conclude(repair.Busy), true
	case over:
		return conclude(reason), true
	case n.Excluded:
		return conclude(repair.NodeExcluded), true
	case n.Unknown:
		// Whatever asks for the reset, its faults may be over.
		return repair.Verdict{Step: repair.Wait, Reason: repair.SessionUnknown}, true
	case o.Session != "" && n.Missing:
		return repair.Verdict{Step: repair.Wait, Reason: repair.MarksLifted}, true
	case n.Claim == "":
		return repair.Verdict{Step: repair.Claim, Reason: repair.NotClaimed}, true
	}
	return repair.Verdict{}, false
}

// tearing is a reset whose services are noted and go, or have gone.
func tearing(v View, p Policy, now time.Time) repair.Verdict {
	o, n := v.Object, v.Node
	rest := remaining(o.TeardownAt, p.TeardownTimeout, now)
	ours := n.Down == o.UID
	if rest <= 0 && ours {
		return conclude(TeardownTimeUp)
	}
	if verdict, closed := gated(v); closed {
		if verdict.Step == repair.Wait && ours {
			return wait(p, rest, verdict.Reason)
		}
		if verdict.Step == repair.Wait {
			return waiting(v, p, now, verdict.Reason)
		}
		return verdict
	}
	switch {
	case n.Down != "" && !ours:
		return waiting(v, p, now, LeftDown)
	case !ours && (rest < p.TeardownTimeout/2 || !slices.EqualFunc(o.Noted, n.Services, unchanged)):
		return repair.Verdict{Step: Note, Reason: ServicesChanged}
	case !ours:
		return repair.Verdict{Step: TearDown, Reason: NotTornDown}
	case slices.ContainsFunc(n.Services, func(s Service) bool { return s.Pods > 0 }):
		return wait(p, rest, PodsLeft)
	}
	return repair.Verdict{Step: NoteJob, Reason: NodeFree}
}

// unchanged reports whether a service is as it was noted.
func unchanged(was, is Service) bool {
	return was.Label == is.Label && was.Present == is.Present && was.Value == is.Value
}

// working is a reset whose Job was or may have been created.
func working(v View, p Policy, now time.Time) repair.Verdict {
	o := v.Object
	switch v.Job {
	case JobForeign:
		return conclude(NameTaken)
	case JobSucceeded:
		return conclude(JobEnded)
	case JobFailed:
		return conclude(JobFailure)
	case JobRunning:
		if o.JobUID == "" {
			return repair.Verdict{Step: SeeJob, Reason: JobCreated}
		}
		if rest := pending(v, p, now); rest > 0 {
			return wait(p, rest, JobRuns)
		}
		return conclude(JobTimeUp)
	case JobAbsent:
	}
	if o.JobUID != "" || remaining(o.JobAt, createWithin, now) <= 0 {
		return conclude(JobLost)
	}
	if verdict, closed := gated(v); closed {
		if verdict.Step == Conclude && pending(v, p, now) > 0 {
			return wait(p, pending(v, p, now), JobNotCreated)
		}
		if verdict.Step == repair.Wait {
			return wait(p, remaining(o.JobAt, createWithin, now), verdict.Reason)
		}
		return verdict
	}
	return repair.Verdict{Step: CreateJob, Reason: JobNotCreated}
}

// pending is how long a Job that runs, or may be about to, is waited for; 0 when
// there is none.
func pending(v View, p Policy, now time.Time) time.Duration {
	switch {
	case v.Object.JobAt.IsZero():
		return 0
	case v.Job == JobRunning:
		return remaining(v.Object.JobAt, createWithin+p.JobTimeout+endsWithin, now)
	case v.Job == JobAbsent && v.Object.JobUID == "":
		return remaining(v.Object.JobAt, landsWithin, now)
	}
	return 0
}

// restoring returns the next step of a reset whose end is decided: the labels are restored,
// and after a good reset the services must be up again.
func restoring(v View, p Policy, now time.Time) repair.Verdict {
	o, n := v.Object, v.Node
	switch {
	case n.Exists && n.Down == o.UID:
		return repair.Verdict{Step: Restore, Reason: StillDown}
	case !o.Good || !n.Exists || !missing(v):
		return repair.Verdict{Step: Complete, Reason: Restored}
	case remaining(o.RestoreAt, p.RestoreTimeout, now) <= 0:
		return repair.Verdict{Step: Complete, Reason: RestoreTimeUp}
	}
	return wait(p, remaining(o.RestoreAt, p.RestoreTimeout, now), PodsMissing)
}

// missing reports whether a service that ran before, and whose label is as it was,
// has no Ready pod.
func missing(v View) bool {
	return slices.ContainsFunc(v.Object.Noted, func(was Service) bool {
		return was.Running && was.Value != Off && slices.ContainsFunc(v.Node.Services, func(is Service) bool {
			return unchanged(was, is) && is.Ready == 0
		})
	})
}

// deleted is an object that was deleted before its end. A Job that runs is waited
// for: the services must not come back under it.
func deleted(v View, p Policy, now time.Time) repair.Verdict {
	o, n := v.Object, v.Node
	switch {
	case !o.Finalizer:
		return repair.Verdict{Step: repair.Done, Reason: repair.Deleted}
	case n.Exists && n.Down == o.UID && pending(v, p, now) > 0:
		return wait(p, pending(v, p, now), JobRuns)
	case n.Exists && n.Down == o.UID:
		return repair.Verdict{Step: Restore, Reason: repair.Deleted}
	}
	return repair.Verdict{Step: repair.Unclaim, Reason: repair.Deleted}
}

func conclude(why repair.Reason) repair.Verdict {
	return repair.Verdict{Step: Conclude, Reason: why}
}

// waiting waits for the world, but not for ever: before the teardown since the
// start, after it since then. The wait for a person has no limit.
func waiting(v View, p Policy, now time.Time, reason repair.Reason) repair.Verdict {
	from := v.Object.Started
	if !v.Object.TeardownAt.IsZero() {
		from = v.Object.TeardownAt
	}
	if rest := remaining(from, p.Timeout, now); rest > 0 {
		return wait(p, rest, reason)
	}
	if reason == repair.NodeAbsent {
		return conclude(reason)
	}
	return conclude(repair.TimeUp)
}

func wait(p Policy, rest time.Duration, reason repair.Reason) repair.Verdict {
	return repair.Verdict{Step: repair.Wait, Reason: reason, Again: min(p.Poll, rest)}
}

// remaining is what is left of a limit since from.
func remaining(from time.Time, limit time.Duration, now time.Time) time.Duration {
	return max(0, remediation.Left(from, limit, now))
}
