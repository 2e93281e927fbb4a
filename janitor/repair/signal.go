package repair

import (
	"time"

	"github.com/nvidia/nvsentinel/internal/remediation"
)

// opening is what all kinds begin and end with.
func opening(v View, p Policy, now time.Time) (Verdict, bool) {
	o := v.Object
	switch {
	case o.Completed || o.Deleting:
		return Ending(o, p, now), true
	case o.Started.IsZero() || !o.Finalizer:
		return Verdict{Step: Begin, Reason: NotStarted}, true
	case o.Unnamed:
		return Verdict{Step: Fail, Reason: NodeUnnamed}, true
	case o.Abandoned:
		return Verdict{Step: Fail, Reason: GivenUp}, true
	}
	return Verdict{}, false
}

// Ending is an object whose outcome is known or no longer wanted. Its time to
// live is counted from its end; an end that lies ahead was recorded by a clock
// that has been set right since, and is waited for again and again.
func Ending(o Object, p Policy, now time.Time) Verdict {
	reason := Ended
	if !o.Completed {
		reason = Deleted
	}
	rest := o.CompletedAt.Add(p.TTL).Sub(now)
	switch {
	case o.Finalizer:
		return Verdict{Step: Unclaim, Reason: reason}
	case o.Deleting || o.RemovedByOther || p.TTL <= 0:
		return Verdict{Step: Done, Reason: reason}
	case rest > 0:
		return Verdict{Step: Wait, Reason: reason, Again: min(rest, longestWait)}
	}
	return Verdict{Step: Expire, Reason: reason}
}

// longestWait bounds the wait for the end of an object's life.
const longestWait = time.Hour

// pending is a machine that shows no effect: an answered signal is waited for as
// unshown, one without an answer gets ResendAfter to show itself.
func pending(v View, p Policy, now time.Time, unshown Reason) (Verdict, bool) {
	o := v.Object
	sent, due := !o.SignalAt.IsZero(), o.LastAt.Add(p.ResendAfter)
	if !o.NotBefore.IsZero() && o.NotBefore.Before(due) {
		due = o.NotBefore // the plugin named the time for the same key
	}
	switch {
	case left(v, p, now) <= 0:
		return Verdict{Step: Fail, Reason: TimeUp}, true
	case sent && o.Acknowledged:
		return awaiting(v, p, now, unshown), true
	case sent && now.Before(due):
		return until(due, now, awaiting(v, p, now, Unanswered)), true
	}
	return Verdict{}, false
}

// until shortens a wait to end at a time.
func until(at, now time.Time, wait Verdict) Verdict {
	wait.Again = min(wait.Again, at.Sub(now))
	return wait
}

// signaling returns the next step for a machine that has to get the signal, or get it again.
func signaling(v View, p Policy, now time.Time) Verdict {
	o, n := v.Object, v.Node
	sent := !o.SignalAt.IsZero()
	if n.Claim != "" && n.Claim != o.UID {
		return awaiting(v, p, now, Busy)
	}
	if reason, over := Over(o.Session, n); over {
		if sent {
			// The first signal may still take effect, so the claim stays; but
			// there is no second one.
			return awaiting(v, p, now, reason)
		}
		return Verdict{Step: SessionOver, Reason: reason}
	}
	if n.Excluded {
		if sent {
			return awaiting(v, p, now, NodeExcluded)
		}
		return Verdict{Step: Fail, Reason: NodeExcluded}
	}
	switch {
	case n.Unknown:
		// Whatever asks for the repair, its faults may be over.
		return awaiting(v, p, now, SessionUnknown)
	case o.Session != "" && n.Missing:
		return awaiting(v, p, now, MarksLifted)
	case n.Claim == "":
		return Verdict{Step: Claim, Reason: NotClaimed}
	case p.Manual:
		return awaiting(v, p, now, Manual)
	case now.Before(o.NotBefore):
		return until(o.NotBefore, now, awaiting(v, p, now, Throttled))
	case sent:
		return Verdict{Step: Resend, Reason: Unanswered}
	}
	return Verdict{Step: Send, Reason: Claimed}
}

// Over reports whether the quarantine session that asked for a repair of the Node is
// over. A person's object belongs to none, which is "".
func Over(session string, n Node) (Reason, bool) {
	switch {
	case session == "":
		return "", false
	case n.Session == "":
		return NoSession, true
	case n.Session != session:
		return OtherSession, true
	case n.Schedulable && !n.Missing:
		return NodeSchedulable, true
	}
	return "", false
}

// awaiting waits for the world, but not for ever.
func awaiting(v View, p Policy, now time.Time, reason Reason) Verdict {
	rest := left(v, p, now)
	if rest > 0 {
		return Verdict{Step: Wait, Reason: reason, Again: min(p.Poll, rest)}
	}
	if reason == NodeAbsent {
		return Verdict{Step: Fail, Reason: NodeGone}
	}
	return Verdict{Step: Fail, Reason: TimeUp}
}

// left is the time until the object fails. In manual mode the signal may take
// as long as it takes.
func left(v View, p Policy, now time.Time) time.Duration {
	from := v.Object.Started
	if !v.Object.SignalAt.IsZero() {
		from = v.Object.SignalAt
	} else if p.Manual && v.Node.Exists {
		return p.Timeout
	}
	return remediation.Left(from, p.Timeout, now)
}
