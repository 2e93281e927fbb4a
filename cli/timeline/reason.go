package timeline

import (
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// explain is a verdict's reason in words, for who sees it alone; empty is one
// that says itself.
func explain(r record.Reason) string {
	switch r {
	case record.Matched:
		return "" // its rules and effects stand beside it
	case record.NoRuleMatched:
		return "no enabled rule set asks for anything"
	case record.Held:
		return "a budget or the emergency brake holds it back; it is served when there is room"
	case record.Skipped:
		return "the event says quarantineOverrides.skip"
	case record.OptedOut:
		return "the Node is opted out by its label"
	case record.CoveredByReboot:
		return "it is of a boot that is over, and a reboot cures it"
	case record.Superseded:
		return "a later recovery named all of it, or its machine is gone"
	case record.Cleared:
		return "a recovery that ended open faults"
	case record.NoOpenFault:
		return "a recovery that found no open fault to end"
	case record.DryRun:
		return "it would have been acted upon; fault-quarantine runs dry"
	}
	return ""
}

// undecidable is why fault-quarantine cannot judge a fault, as far as the Node
// tells; empty when it can.
func undecidable(s observation, r record.Record) string {
	switch {
	case !r.IsFault():
		return ""
	case s.node == nil && s.read:
		return "NodeMissing: there is no such Node; it is judged when the Node is back or another machine has the name"
	case s.node == nil || fault.Compare(fault.Of(r), s.node.Identity) != fault.Undecidable:
		return ""
	case fault.Machine(fault.Of(r)) == "" && s.node.Created.Before(r.CreatedAt):
		return ""
	}
	return "MachineUndecidable: nobody can say whether it is about the machine that bears the name now; a recovery of its check ends it"
}
