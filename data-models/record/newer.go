package record

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/api/protos"
)

// Version is what MinVersion is compared with. Who adds a field or a value that an
// earlier program must not overlook raises it by one, and has the writer of that field
// give the records concerned a MinVersion of it: see docs/tasks/upgrade.md.
const Version = 1

// NeedsNewer returns why this version must not change a record, or an empty text: the
// record requires a newer version, or a status has a value that this version does not
// know. Such a record is read as far as it can be, and waits for a newer program.
func NeedsNewer(r Record) string {
	if r.MinVersion > Version {
		return fmt.Sprintf("changes require a program with record version %d or newer, this program has version %d", r.MinVersion, Version)
	}
	st := r.Status
	for _, f := range []struct {
		name, value string
		known       bool
	}{
		{"nodequarantined", string(st.NodeQuarantined), slices.Contains(quarantines, st.NodeQuarantined)},
		{"userpodsevictionstatus", string(st.UserPodsEvictionStatus.Status), slices.Contains(evictions, st.UserPodsEvictionStatus.Status)},
		{"quarantineverdict", string(r.Reason()), slices.Contains(reasons, r.Reason())},
		{"remediation", string(outcomeOf(st)), slices.Contains(outcomes, outcomeOf(st))},
	} {
		if !f.known {
			return fmt.Sprintf("the value %.64q of %s is unknown to this version", f.value, f.name)
		}
	}
	return ""
}

// The values that this version knows.
var (
	quarantines = []Quarantine{NotQuarantined, Quarantined, AlreadyQuarantined, UnQuarantined, QuarantineCanceled}
	evictions   = []Eviction{EvictionUnset, EvictionInProgress, EvictionSucceeded, AlreadyDrained, EvictionFailed, EvictionCanceled}
	reasons     = []Reason{"", Matched, NoRuleMatched, Held, Skipped, OptedOut, CoveredByReboot, Superseded, Cleared, NoOpenFault, DryRun}
	outcomes    = []Outcome{"", OutcomeSucceeded, OutcomeCovered, OutcomeCanceled, OutcomeNeedsHuman}
)

func outcomeOf(s Status) Outcome {
	if s.Remediation == nil {
		return ""
	}
	return s.Remediation.Outcome
}

// Metadata keys that keep the text of a value that the receiver of the event did not know.
const (
	// MetadataUnknownAction is the name, or the number on the wire, of an action that
	// became UNKNOWN.
	MetadataUnknownAction = "unknownRecommendedAction"
	// MetadataUnknownStrategy is the number on the wire of a strategy that became
	// PERSIST_ONLY.
	MetadataUnknownStrategy = "unknownProcessingStrategy"
)

// Action is the recommended action as this version understands it: one that it does not
// know is UNKNOWN, and so a person's. What a program that knew less had to keep as
// UNKNOWN is the action itself where this version knows it.
func (e Event) Action() Action {
	switch a := e.RecommendedAction; {
	case a == ActionUnknown:
		return parseAction(e.Metadata[MetadataUnknownAction])
	case a.Known():
		return a
	}
	return ActionUnknown
}

// Known reports whether an action is one of the wire's.
func (a Action) Known() bool {
	_, known := protos.RecommendedAction_value[string(a)]
	return known
}

// parseAction is the action that a text names.
func parseAction(text string) Action {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return actionOf(protos.RecommendedAction(n))
	}
	if a := Action(text); a.Known() {
		return a
	}
	return ActionUnknown
}
