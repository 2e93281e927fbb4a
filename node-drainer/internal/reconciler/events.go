package reconciler

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Reasons of the Events on the Node.
const (
	// drainStarted: the drain of the node began. Action: none.
	drainStarted = "DrainStarted"
	// drainSucceeded: no Pod that has to leave is on the node. Action: none.
	drainSucceeded = "DrainSucceeded"
	// drainCancelled: the quarantine session ended or no fault needs the drain, so it stopped. Action: none.
	drainCancelled = "DrainCancelled"
	// drainBlocked: Pods stay on the node for longer than expected, for the cause that the Event names. Action: run
	// `nvsentinel why <node>` and remove the cause, for example a PodDisruptionBudget that permits no eviction.
	drainBlocked = "DrainBlocked"
	// newerVersion: a newer version of node-drainer wrote the drain status of a record, so this one does not continue
	// it. Action: finish the upgrade.
	newerVersion = "NewerVersionRequired"
	// podsLeftAlone: Pods came back to the cordoned node after several evictions, so the drain no longer waits for
	// them, as for Pods of DaemonSets. Action: stop their controller from placing them on cordoned nodes.
	podsLeftAlone = "PodsLeftAlone"
	// podsLost: Pods that are not ready or do not terminate no longer hold the drain, and end with the remediation of
	// the machine. Action: none.
	podsLost = "PodsLeftToRepair"
	// awaitingCompletion: the drain waits for Pods to complete. The predecessor has the same reason. Action: none.
	awaitingCompletion = "AwaitingPodCompletion"
	// awaitingDeadline: Pods are deleted when their deadline has passed. The predecessor has the same reason. Action:
	// none.
	awaitingDeadline = "WaitingBeforeForceDelete"
)

// report makes a step visible: log, metrics and an Event on the Node.
func (rc *Reconciler) report(seen facts, step decision.Step) {
	rc.metrics.stepped(step)
	if len(step.Updates) > 0 || len(step.Pods) > 0 {
		rc.log.Info("drain step completed", "node", seen.name, "session", step.Session, "step", string(step.Kind),
			"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "records", len(step.Updates))
	}
	if step.Kind == decision.Finish && step.Why == decision.PodsGone {
		rc.metrics.drained(seen.view.Records, step, rc.clock.Now())
	}
	if step.Kind != decision.Evict && step.Kind != decision.Delete { // which come between two waits
		seen.notes.wait(step.Blocked)
	}
	if seen.node == nil {
		return
	}
	for _, e := range append([]event{announcement(seen.view, step)}, rc.warnings(step)...) {
		if e.reason != "" && !seen.notes.announced[e] { // once in this process
			seen.notes.announced[e] = true
			rc.events.Event(eventrecorder.Node(seen.name), e.kind(), e.reason, e.message)
		}
	}
}

// event is the content of an Event; its message changes with the session and with what keeps
// pods, so that the same news raises a count.
type event struct{ reason, message string }

// kind is the type of the Event: what asks for somebody is a Warning.
func (e event) kind() string {
	switch e.reason {
	case drainBlocked, newerVersion, podsLeftAlone, podsLost:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// maxNamed bounds the names in an Event.
const maxNamed = 5

// warnings are the Events of what keeps pods from leaving, or leaves them on the node.
func (rc *Reconciler) warnings(step decision.Step) []event {
	var out []event
	if len(step.Lost) > 0 {
		out = append(out, event{podsLost, fmt.Sprintf(
			"Pods that are not ready or do not terminate no longer block the drain, the remediation of the machine terminates them: %s, quarantine session %s",
			named(step.Lost), step.Session)})
	}
	for _, b := range step.Blocked {
		e := event{drainBlocked, rc.blockedBy(b) + ". The drain status of the record lists the Pods, quarantine session " + step.Session}
		if step.Kind == decision.LeaveAlone {
			e = event{podsLeftAlone, fmt.Sprintf(
				"Pods that returned to the cordoned node after %d evictions are ignored, as those of DaemonSets: %s, quarantine session %s",
				rc.config.Policy.Returns, named(b.By), step.Session)}
		}
		out = append(out, e)
	}
	return out
}

func (rc *Reconciler) blockedBy(b decision.Blocked) string {
	switch b.Why { //nolint:exhaustive // no other reason blocks a drain
	case decision.BudgetBlocked:
		return strings.TrimSuffix("Disruption budgets block evictions: "+named(b.By), ": ")
	case decision.SeveralBudgets:
		return "Pods have several disruption budgets, which the eviction API does not support. Remove all but one: " +
			named(b.By)
	case decision.EvictionErrored:
		return "Evictions fail"
	case decision.PodsReturn:
		return "Pods are recreated on the node after every eviction, by controllers of kind " + named(b.By)
	case decision.NeverCompletes:
		return "The drain waits for Pods that never complete, with controllers of kind " + named(b.By)
	case decision.AwaitingCompletion:
		return fmt.Sprintf("Pods have not completed within %s of the fault", rc.config.Policy.Overdue)
	}
	return string(b.Why)
}

func named(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

// announcement is the Event of a step; empty if it is not worth one, as the end
// of a drain that had nothing to move.
func announcement(v decision.View, step decision.Step) event {
	switch {
	case step.Kind == decision.Start:
		return event{drainStarted, "Started draining the node, quarantine session " + step.Session}
	case step.Kind == decision.Finish && step.Why == decision.PodsGone && wasRunning(v, step):
		return event{drainSucceeded, "Finished draining the node, quarantine session " + step.Session}
	case step.Kind == decision.Cancel && wasRunning(v, step):
		return event{drainCancelled, step.Updates[0].Status.Message + ", record " + step.Updates[0].ID}
	case step.Kind == decision.Wait && step.Why == decision.NewerVersion:
		return event{newerVersion, "A fault of the node requires a newer version of node-drainer, see docs/tasks/upgrade.md, quarantine session " + step.Session}
	case step.Kind == decision.Wait && step.Why == decision.AwaitingCompletion:
		return event{awaitingCompletion, "Pods can complete before the node is remediated, quarantine session " + step.Session}
	case step.Kind == decision.Wait && step.Why == decision.AwaitingDeadline:
		return event{awaitingDeadline, "Pods can complete until they are deleted, quarantine session " + step.Session}
	}
	return event{}
}

func wasRunning(v decision.View, step decision.Step) bool {
	for _, s := range step.Updates {
		for _, r := range v.Records {
			if r.ID == s.ID && r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress {
				return true
			}
		}
	}
	return false
}
