package reboot

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
)

// Decide says what to do next.
func Decide(v View, p Policy, now time.Time) Verdict {
	o, n := v.Object, v.Node
	switch {
	case o.Completed || o.Deleting:
		return ending(o, p, now)
	case o.Started.IsZero() || !o.Finalizer:
		return Verdict{Step: Begin, Reason: NotStarted}
	case !n.Exists:
		return awaiting(v, p, now, NodeAbsent)
	case o.Key == "" && n.Identity.BootID == "":
		return awaiting(v, p, now, BootUnknown)
	case o.Key == "":
		return Verdict{Step: Begin, Reason: NoIntent}
	}
	switch fault.Compare(o.Machine, n.Identity) {
	case fault.AnotherMachine:
		return Verdict{Step: Fail, Reason: AnotherMachine}
	case fault.Undecidable:
		return awaiting(v, p, now, MachineUnknown)
	case fault.SameMachine:
	}
	if n.Identity.BootID != "" && n.Identity.BootID != o.PreBoot {
		return rebooted(v, p, now)
	}
	return signaling(v, p, now)
}

// ending is an object whose outcome is known or no longer wanted. Its time to
// live is counted from its end; an end that lies ahead was stamped by a clock
// that has been set right since, and is waited for again and again.
func ending(o Object, p Policy, now time.Time) Verdict {
	reason := Ended
	if !o.Completed {
		reason = Deleted
	}
	rest := o.CompletedAt.Add(p.TTL).Sub(now)
	switch {
	case o.Finalizer:
		return Verdict{Step: Unclaim, Reason: reason}
	case o.Deleting || o.Kept || p.TTL <= 0:
		return Verdict{Step: Done, Reason: reason}
	case rest > 0:
		return Verdict{Step: Wait, Reason: reason, Again: min(rest, longestWait)}
	}
	return Verdict{Step: Expire, Reason: reason}
}

// longestWait bounds the wait for the end of an object's life.
const longestWait = time.Hour

// rebooted is a node whose boot id has changed: the Node and the plugin must
// both say that it is up.
func rebooted(v View, p Policy, now time.Time) Verdict {
	switch {
	case !v.Node.Ready:
		return awaiting(v, p, now, NotReady)
	case v.Plugin == NotAsked:
		return Verdict{Step: AskPlugin, Reason: BootChanged}
	case v.Plugin == SaysReady:
		return Verdict{Step: Succeed, Reason: BootChanged}
	}
	return awaiting(v, p, now, PluginNotReady)
}

// signaling is a node under the old boot.
func signaling(v View, p Policy, now time.Time) Verdict {
	o, n := v.Object, v.Node
	if left(v, p, now) <= 0 {
		return Verdict{Step: Fail, Reason: TimeUp}
	}
	sent := !o.SignalAt.IsZero()
	switch {
	case sent && o.Acknowledged:
		return awaiting(v, p, now, BootUnchanged)
	case sent && now.Before(resendAt(o, p)):
		verdict := awaiting(v, p, now, Unanswered)
		verdict.Again = min(verdict.Again, resendAt(o, p).Sub(now))
		return verdict
	case n.Identity.BootID == "":
		return awaiting(v, p, now, BootUnknown)
	case n.Claim != "" && n.Claim != o.UID:
		return awaiting(v, p, now, Busy)
	}
	if reason, over := sessionOver(v); over {
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
	case n.Claim == "":
		return Verdict{Step: Claim, Reason: NotClaimed}
	case p.Manual:
		return awaiting(v, p, now, Manual)
	case now.Before(o.NotBefore):
		verdict := awaiting(v, p, now, Throttled)
		verdict.Again = min(verdict.Again, o.NotBefore.Sub(now))
		return verdict
	case sent:
		return Verdict{Step: Resend, Reason: Unanswered}
	}
	return Verdict{Step: Send, Reason: Claimed}
}

// sessionOver says whether the quarantine that asked for the reboot is over. A
// person's object belongs to none.
func sessionOver(v View) (Reason, bool) {
	switch {
	case v.Object.Session == "":
		return "", false
	case v.Node.Session == "":
		return NoSession, true
	case v.Node.Session != v.Object.Session:
		return OtherSession, true
	case v.Node.Schedulable:
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
// as long as it takes. A beginning further ahead than the whole time was
// stamped by a clock that has been set right since; the time is up then, so
// that no node waits for years.
func left(v View, p Policy, now time.Time) time.Duration {
	from := v.Object.Started
	if !v.Object.SignalAt.IsZero() {
		from = v.Object.SignalAt
	} else if p.Manual && v.Node.Exists {
		return p.Timeout
	}
	rest := from.Add(p.Timeout).Sub(now)
	if rest > 2*p.Timeout {
		return 0
	}
	return rest
}

// resendAt is when the signal after the last one is due: every signal gets
// ResendAfter to show itself.
func resendAt(o Object, p Policy) time.Time {
	return o.SignalAt.Add(time.Duration(o.Signals) * p.ResendAfter)
}
