package fault

import "github.com/nvidia/nvsentinel/data-models/record"

// Rank orders the actions that a machine can be repaired by without a person:
// a higher rank covers the lower ones. Zero means none or a person's work.
func Rank(a record.Action) int {
	switch a {
	case record.ActionComponentReset:
		return 1
	case record.ActionRestartVM, record.ActionRestartBM:
		return 2
	case record.ActionReplaceVM:
		return 3
	default:
		return 0
	}
}

// NeedsHuman says whether the action is a person's by its kind.
func NeedsHuman(a record.Action) bool {
	return a != record.ActionNone && Rank(a) == 0
}

// CuredByReboot says whether a reboot undoes the cause of a fault with this action.
func CuredByReboot(a record.Action) bool {
	return Rank(a) == 1 || Rank(a) == 2
}
