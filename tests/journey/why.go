package journey

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// whyLimit is how long the command line may take to report why a node is stuck.
const whyLimit = time.Minute

// blockedRun is what the command line reports about a trip that did not end.
type blockedRun struct {
	// Text is the answer for people.
	Text string
	// Vague is why the answer explains nothing, or empty.
	Vague string
}

// blocked reports whether a trip did not end.
func (r Result) blocked() bool {
	return r.Err != nil || slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Invariant == ItEnds || v.Invariant == NoMarkLeft })
}

// explain runs nvsentinel why for a stuck node.
func (j *Journey) explain(ctx context.Context, node string) blockedRun {
	ctx, cancel := context.WithTimeout(ctx, whyLimit)
	defer cancel()
	text, err := j.Fleet.Why(ctx, node)
	if err != nil {
		return blockedRun{Text: string(text), Vague: err.Error()}
	}
	answer, err := j.Fleet.Why(ctx, node, "-o", "json")
	if err != nil {
		return blockedRun{Text: string(text), Vague: err.Error()}
	}
	return blockedRun{Text: string(text), Vague: vague(answer)}
}

// expectedPhases are the phases in which a node waits for something, and the reasons that
// explain nothing on their own.
var expectedPhases = struct{ phases, nothing []string }{
	phases: []string{"manual-intervention", "node-deleted", "remediating", "draining", "quarantined", "recovering", "releasing", "held", "pending-evaluation"},
	nothing: []string{
		"waiting for node-drainer", "waiting for the evaluation by fault-quarantine", "waiting for fault-quarantine to set the node marks",
		"drained, waiting for fault-remediation", "pods are being evicted",
	},
}

// vague returns what is missing in an answer of nvsentinel why -o json: a phase in which a node
// waits, or a reason that names what it waits for. That the next service has to act is no such
// reason, nor is a reserved name.
func vague(answer []byte) string {
	var story struct {
		Standing struct{ Phase, Reason string }
	}
	if err := json.Unmarshal(answer, &story); err != nil {
		return err.Error()
	}
	s := story.Standing
	switch {
	case !slices.Contains(expectedPhases.phases, s.Phase):
		return fmt.Sprintf("it calls the node %q", s.Phase)
	case s.Reason == "", slices.Contains(expectedPhases.nothing, s.Reason), strings.HasSuffix(s.Reason, ": Reserved"):
		return fmt.Sprintf("it says %s: %q and not what for", s.Phase, s.Reason)
	}
	return ""
}
