package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Phase is how a node stands.
type Phase string

// Phases, the most pressing first.
const (
	// NeedsHuman: the suite has done what it can, a person has to go on.
	NeedsHuman Phase = "manual-intervention"
	// NodeDeleted: the API server is certain that there is no such Node.
	NodeDeleted Phase = "node-deleted"
	// Remediating: a repair object exists or is about to.
	Remediating Phase = "remediating"
	// Draining: pods are being evicted.
	Draining Phase = "draining"
	// Quarantined: out of scheduling; the next service has not begun.
	Quarantined Phase = "quarantined"
	// Recovering: repaired; no recovery is reported yet.
	Recovering Phase = "recovering"
	// Releasing: no fault is open any more, the marks are still there.
	Releasing Phase = "releasing"
	// Held: a fault matches a rule, the budget holds it back.
	Held Phase = "held"
	// PendingEvaluation: fault-quarantine has not evaluated a record yet.
	PendingEvaluation Phase = "pending-evaluation"
	// Cordoned: by somebody else.
	Cordoned Phase = "cordoned"
	// NotReady: for a reason that is not ours.
	NotReady Phase = "not-ready"
	// Unknown: what was read does not show it.
	Unknown   Phase = "unknown"
	InService Phase = "in-service"
)

// Phases lists every phase, the most pressing first.
func Phases() []Phase {
	return []Phase{
		NeedsHuman, NodeDeleted, Remediating, Draining, Quarantined, Recovering, Releasing, Held, PendingEvaluation,
		Cordoned, NotReady, Unknown, InService,
	}
}

// Standing is a node's phase with its reason.
type Standing struct {
	Phase Phase `json:"phase"`
	// Reason is what is waited for, or who has to do what.
	Reason string `json:"reason,omitempty"`
	// Since is when the oldest fault behind it was reported; zero without one.
	Since time.Time `json:"since,omitzero"`
	// Session is the present stay in quarantine, or empty.
	Session string `json:"session,omitempty"`
	// Records are the ids of the records behind it, oldest first.
	Records []string `json:"records,omitempty"`
	// Object is the repair object under way, as kind/name.
	Object string `json:"object,omitempty"`

	// turn orders what is held as it will be served; 0 elsewhere.
	turn int64
}

// observation is the Node, with whether its absence is certain.
type observation struct {
	node *Node
	read bool
}

// standing derives the standing of one node from its records that are open or not
// evaluated, and from the Node.
func standing(s observation, storeRead bool, records []record.Record) Standing {
	open := only(records, record.Open)
	if st, ok := ofUnknown(s.node, open); ok {
		return behind(st, open)
	}
	if newer := only(records, func(r record.Record) bool { return record.NeedsNewer(r) != "" }); len(newer) > 0 {
		return behind(Standing{Phase: NeedsHuman, Reason: "NewerVersionRequired: record " + newer[0].ID + ": " + record.NeedsNewer(newer[0]) +
			", this version does not process it, see docs/tasks/upgrade.md"}, newer)
	}
	if len(open) > 0 {
		st := ofOpen(open)
		if s.node == nil && s.read {
			st.Phase, st.Reason = NodeDeleted, "the Node is deleted, its quarantine session waits for the machine ("+st.Reason+")"
		}
		return st
	}
	if st, ok := ofBacklog(s, records); ok && (s.node == nil || s.node.Session == "") {
		return st
	}
	return ofNode(s, storeRead)
}

// ofUnknown is the standing of a node of which the store knows less than the
// Node: emptied, restored to an older state, or exchanged.
func ofUnknown(n *Node, open []record.Record) (Standing, bool) {
	const see = ", see docs/tasks/back-up-and-restore.md"
	switch {
	case n == nil:
	case len(n.Unknown) > 0:
		return Standing{Phase: NeedsHuman, Session: n.Session, Reason: "SessionUnknown: the store has no information whether " + strings.Join(n.Unknown, ", ") +
			" has ended, so nothing is drained, repaired or released until it does, or until manual release of the node" + see}, true
	case len(open) > 0 && n.Session == "" && !n.Unschedulable && len(n.Taints) == 0 && !slices.ContainsFunc(open, func(r record.Record) bool { return unmarked(n, r) }):
		return Standing{Phase: NeedsHuman, Reason: "SessionUnknown: the Node had marks for open faults and has none now, so nothing is done for them until their checks report again" + see}, true
	}
	return Standing{}, false
}

// unmarked reports whether a Node was never marked for a record, or another machine was.
func unmarked(n *Node, r record.Record) bool {
	return r.Status.QuarantineFinishTimestamp == nil || fault.Compare(fault.Of(r), n.Identity) == fault.AnotherMachine
}

// ofOpen is the standing that open records give.
func ofOpen(open []record.Record) Standing {
	for _, find := range []func(record.Record) (Standing, bool){human, repairing, evicting, undrained, unrepaired, unrepairable} {
		for _, r := range open {
			if st, ok := find(r); ok {
				if st.Phase == Quarantined && !slices.ContainsFunc(open, keepsPodsAway) {
					st.Reason = "no rule requests a cordon or a taint that blocks scheduling: the node is neither drained nor repaired, and the quarantine session ends with the recovery"
				}
				return behind(st, open)
			}
		}
	}
	return behind(Standing{Phase: Recovering, Reason: "repaired, waiting for the monitor to report the recovery"}, open)
}

// keepsPodsAway reports whether a fault's verdict asks for what a drain needs.
func keepsPodsAway(r record.Record) bool {
	e := r.Status.QuarantineVerdict.Effects
	return e.Cordon || slices.ContainsFunc(e.Taints, func(t record.Taint) bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" })
}

func human(r record.Record) (Standing, bool) {
	rem := r.Status.Remediation
	switch {
	case rem != nil && (rem.Outcome == record.OutcomeNeedsHuman || record.Remediated(r.Status) == "false"):
		return Standing{Phase: NeedsHuman, Reason: joined(rem.Reason, rem.Message)}, true
	case r.Status.UserPodsEvictionStatus.Status == record.EvictionFailed:
		return Standing{Phase: NeedsHuman, Reason: joined("the drain failed", r.Status.UserPodsEvictionStatus.Message)}, true
	}
	return Standing{}, false
}

func repairing(r record.Record) (Standing, bool) {
	for _, a := range record.Attempts(r) {
		if a.FinishedAt == nil {
			reason := fmt.Sprintf("attempt %d: %s %s", a.Ordinal, a.Kind, a.Name)
			return Standing{Phase: Remediating, Reason: joined(reason, joined(joined(a.Reason, a.Message), waits(r))), Object: a.Kind + "/" + a.Name}, true
		}
	}
	return Standing{}, false
}

func evicting(r record.Record) (Standing, bool) {
	e := r.Status.UserPodsEvictionStatus
	return Standing{Phase: Draining, Reason: e.Message}, e.Status == record.EvictionInProgress
}

func undrained(r record.Record) (Standing, bool) {
	reason := "waiting for node-drainer"
	if r.Status.NodeQuarantined == record.NotQuarantined {
		reason = "waiting for fault-quarantine to set the node marks"
	}
	st := r.Status.UserPodsEvictionStatus.Status
	return Standing{Phase: Quarantined, Reason: reason}, st == record.EvictionUnset
}

func unrepaired(r record.Record) (Standing, bool) {
	reason := "drained, waiting for fault-remediation"
	if w := waits(r); w != "" {
		reason = "drained, " + w
	}
	return Standing{Phase: Quarantined, Reason: reason}, r.Status.FaultRemediated == nil && !requiresNoAction(r)
}

// unrepairable is a fault that asks for no repair, which no configuration changes, whether
// fault-remediation has looked at it or not.
func unrepairable(r record.Record) (Standing, bool) {
	reason := "drained, no remediation is configured for this fault (action NONE), waiting for its recovery"
	if w := waits(r); w != "" {
		reason = "drained, " + w
	}
	return Standing{Phase: Quarantined, Reason: reason}, r.Status.FaultRemediated == nil && requiresNoAction(r)
}

func requiresNoAction(r record.Record) bool {
	name := record.RepairAction(r)
	return name == record.ActionNone || name == ""
}

// waits returns what the repair of a record waits for, and until when; empty if the
// record does not contain it.
func waits(r record.Record) string {
	rem := r.Status.Remediation
	if rem == nil || rem.Waiting == nil {
		return ""
	}
	text := joined(rem.Waiting.Reason, rem.Waiting.Message)
	if rem.Waiting.Until != nil {
		text += ", until " + rem.Waiting.Until.UTC().Format(time.DateTime) + " UTC at the latest"
	}
	return text
}

// ofBacklog is the standing that held and unevaluated faults give.
func ofBacklog(s observation, records []record.Record) (Standing, bool) {
	held := only(records, func(r record.Record) bool { return r.Reason() == record.Held })
	if len(held) > 0 {
		first := slices.MinFunc(held, func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
		return behind(Standing{Phase: Held, turn: first.Append, Reason: cmp.Or(held[0].Status.QuarantineVerdict.Detail, "the budget for quarantined nodes is exhausted")}, held), true
	}
	waiting := only(records, record.Pending)
	st := Standing{Phase: PendingEvaluation, Reason: "waiting for the evaluation by fault-quarantine"}
	for _, r := range waiting {
		if why := undecidable(s, r); why != "" {
			st.Reason = why
			break
		}
	}
	return behind(st, waiting), len(waiting) > 0
}

// states is what the state label means when the store cannot be asked.
var states = map[nodemark.State]Phase{
	nodemark.Quarantined: Quarantined, nodemark.Draining: Draining, nodemark.DrainSucceeded: Quarantined,
	nodemark.Remediating: Remediating, nodemark.RemediationSucceeded: Recovering, nodemark.RemediationFailed: NeedsHuman,
}

// ofNode is the standing that the Node alone gives.
func ofNode(s observation, storeRead bool) Standing {
	n := s.node
	switch {
	case n == nil && s.read:
		return Standing{Phase: NodeDeleted, Reason: "the Node does not exist"}
	case n == nil && storeRead:
		return Standing{Phase: Unknown, Reason: "the store has no open fault, and the Node was not read"}
	case n == nil:
		return Standing{Phase: Unknown, Reason: "no source could be read"}
	case n.Session != "":
		return ofMarks(n, storeRead)
	case n.Claim != "" && n.ManagedCordon:
		return Standing{Phase: Releasing, Reason: "no fault is open, and the node marks remain until the maintenance object with uid " + n.Claim + ", which claims the Node, has ended"}
	case n.Unschedulable:
		return Standing{Phase: Cordoned, Reason: "cordoned, but not by fault-quarantine"}
	case n.Ready != "True":
		return Standing{Phase: NotReady, Reason: "the Node is not Ready"}
	case !storeRead:
		return Standing{Phase: InService, Reason: "the Node has no marks of NVSentinel, pending faults were not read"}
	}
	return Standing{Phase: InService}
}

// ofMarks is the standing of a Node that bears a session of which no open
// record is known.
func ofMarks(n *Node, storeRead bool) Standing {
	if storeRead {
		return Standing{Phase: Releasing, Session: n.Session, Reason: "the Node has quarantine session " + n.Session + ", for which the store has no open record"}
	}
	st := Standing{Phase: Quarantined, Session: n.Session, Reason: "according to the node marks, the store was not read"}
	if p, ok := states[n.State]; ok {
		st.Phase, st.Reason = p, "according to the node label "+string(n.State)+", the store was not read"
	}
	for _, c := range n.Calls {
		st.Phase, st.Reason = NeedsHuman, joined(c.Reason, c.Message)
	}
	for _, e := range n.Active {
		st.Records = append(st.Records, e.ID)
		st.Since = earlier(st.Since, e.GeneratedTimestamp)
	}
	return st
}

// behind adds the records behind a standing.
func behind(st Standing, records []record.Record) Standing {
	for _, r := range records {
		st.Records = append(st.Records, r.ID)
		st.Since = earlier(st.Since, r.CreatedAt)
		if st.Session == "" {
			st.Session = r.Status.Session
		}
	}
	return st
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func only(records []record.Record, keep func(record.Record) bool) []record.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r record.Record) bool { return !keep(r) })
}

// joined is "a: b", or the one that is not empty.
func joined(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + ": " + b
}
