package repair

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
)

// Termination returns the next step of a TerminateNode. It is over when the
// provider reports that the machine is gone and the Node object is gone too.
func Termination(v View, p Policy, now time.Time) Verdict {
	if verdict, decided := opening(v, p, now); decided {
		return verdict
	}
	o, n := v.Object, v.Node
	switch {
	case o.Key == "" && n.Exists:
		return Verdict{Step: Begin, Reason: NoIntent}
	case !o.SignalAt.IsZero():
		return terminating(v, p, now)
	case !n.Exists:
		return awaiting(v, p, now, NodeAbsent)
	}
	switch fault.Compare(o.Machine, n.Identity) {
	case fault.AnotherMachine:
		return Verdict{Step: Fail, Reason: AnotherMachine}
	case fault.Undecidable:
		return awaiting(v, p, now, MachineUnknown)
	case fault.SameMachine:
	}
	if verdict, decided := pending(v, p, now, MachineThere); decided {
		return verdict
	}
	return signaling(v, p, now)
}

// terminating returns the next step for a machine whose termination may have been
// requested. The provider is always asked first: only its answer that the machine is
// gone makes the Node object a leftover.
func terminating(v View, p Policy, now time.Time) Verdict {
	o, n := v.Object, v.Node
	same := fault.Compare(o.Machine, n.Identity)
	switch {
	case n.Exists && same == fault.AnotherMachine && o.Acknowledged:
		return Verdict{Step: Succeed, Reason: Replaced}
	case n.Exists && same == fault.AnotherMachine:
		return Verdict{Step: Fail, Reason: AnotherMachine}
	case n.Exists && same == fault.Undecidable:
		return awaiting(v, p, now, MachineUnknown)
	case v.Plugin == NotQueried:
		return Verdict{Step: QueryPlugin, Reason: Signaled}
	case v.Plugin == ReportsDeleted && n.Exists:
		return Verdict{Step: DeleteNode, Reason: MachineGone}
	case v.Plugin == ReportsDeleted, v.Plugin == ReportsNothing && !n.Exists:
		return Verdict{Step: Succeed, Reason: MachineGone}
	case !n.Exists:
		return awaiting(v, p, now, MachineThere)
	}
	if verdict, decided := pending(v, p, now, MachineThere); decided {
		return verdict
	}
	if n.Identity.BootID != o.PreBoot {
		// It was rebooted after the signal, or its boot id is unknown: no second signal.
		return awaiting(v, p, now, BootChanged)
	}
	return signaling(v, p, now)
}
