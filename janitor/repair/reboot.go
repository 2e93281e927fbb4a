package repair

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
)

// Reboot decides what to do next with a RebootNode.
func Reboot(v View, p Policy, now time.Time) Verdict {
	if verdict, decided := opening(v, p, now); decided {
		return verdict
	}
	o, n := v.Object, v.Node
	switch {
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
	if verdict, decided := pending(v, p, now, BootUnchanged); decided {
		return verdict
	}
	if n.Identity.BootID == "" {
		return awaiting(v, p, now, BootUnknown)
	}
	return signaling(v, p, now)
}

// rebooted is a node whose boot id has changed: the Node and the plugin must
// both report that it is up.
func rebooted(v View, p Policy, now time.Time) Verdict {
	switch {
	case !v.Node.Ready:
		return awaiting(v, p, now, NotReady)
	case v.Plugin == NotQueried:
		return Verdict{Step: QueryPlugin, Reason: BootChanged}
	case v.Plugin == ReportsReady || v.Plugin == ReportsNothing:
		return Verdict{Step: Succeed, Reason: BootChanged}
	}
	return awaiting(v, p, now, PluginNotReady)
}
