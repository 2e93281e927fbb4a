package record

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// NodeIdentity is one sighting of the machine behind a node name.
type NodeIdentity struct {
	UID        string `json:"uid"`
	ProviderID string `json:"providerid"`
	SystemUUID string `json:"systemuuid"`
	// BootID is what the Node reported when the event was accepted.
	BootID string `json:"bootid"`
}

// Record is one stored health event with everything that was decided about it.
type Record struct {
	// ID is a UUIDv7: primary key, idempotency key and CloudEvent id.
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"createdAt"`
	// Revision counts status updates; every update is compare-and-set on it.
	Revision int64 `json:"revision"`
	// Append is the store's append order, set by the store.
	Append int64        `json:"append"`
	Node   NodeIdentity `json:"node"`
	// Seq is the publisher's counter within SeqEpoch (0 and "" when none).
	Seq      uint64 `json:"seq"`
	SeqEpoch string `json:"seqepoch"`
	// Accepted is the digest of the event as the connector accepted it, given when
	// something changed the event after that.
	Accepted string     `json:"accepted,omitempty"`
	Event    Event      `json:"healthevent"`
	Status   Status     `json:"healtheventstatus"`
	ExpireAt *time.Time `json:"expireAt"`
	// MinVersion is the least Version of a program that may change the record; 0 is
	// any. See NeedsNewer.
	MinVersion int `json:"minversion,omitempty"`
	// Extra is what the document has beside the event and the status that this version
	// does not know.
	Extra *extra.Extra `json:"-"`
}

// Quarantine is the value of nodeQuarantined.
type Quarantine string

// Values of nodeQuarantined; empty is null.
const (
	NotQuarantined     Quarantine = ""
	Quarantined        Quarantine = "Quarantined"
	AlreadyQuarantined Quarantine = "AlreadyQuarantined"
	UnQuarantined      Quarantine = "UnQuarantined"
	QuarantineCanceled Quarantine = "Cancelled"
)

// MarshalJSON writes null while fault-quarantine has written nothing, as those who
// query the stored documents expect. An empty text, which earlier versions wrote,
// and null are read alike.
func (q Quarantine) MarshalJSON() ([]byte, error) {
	if q == NotQuarantined {
		return []byte("null"), nil
	}
	return json.Marshal(string(q))
}

// Eviction is the value of userPodsEvictionStatus.status.
type Eviction string

// Values of userPodsEvictionStatus.status; empty is not written yet.
const (
	EvictionUnset      Eviction = ""
	EvictionInProgress Eviction = "InProgress"
	EvictionSucceeded  Eviction = "Succeeded"
	AlreadyDrained     Eviction = "AlreadyDrained"
	EvictionFailed     Eviction = "Failed"
	EvictionCanceled   Eviction = "Cancelled"
)

// Final reports whether nothing follows this value.
func (e Eviction) Final() bool {
	switch e {
	case EvictionSucceeded, AlreadyDrained, EvictionFailed, EvictionCanceled:
		return true
	case EvictionUnset, EvictionInProgress:
	}
	return false
}

// Reason is the reason of fault-quarantine's verdict on a record.
type Reason string

// Verdict reasons.
const (
	// Matched: a rule set matches the fault or the event forces it, and the budgets permit it, so the fault opens
	// or joins the quarantine session of its node. Action: none. `nvsentinel why <node>` shows the fault and its
	// repair.
	Matched Reason = "Matched"
	// NoRuleMatched: no rule set matches the fault, so nothing is done about it. Action: none. To quarantine nodes
	// with such faults, add a rule set to the file of fault-quarantine.
	NoRuleMatched Reason = "NoRuleMatched"
	// Held: a rule set matches the fault, and a budget is used up or the emergency stop is on, so the node stays
	// in service until that changes. Action: see `nvsentinel status` for the limit and the nodes that use it up,
	// and complete their repairs or raise the limit. If the fault cannot wait, run `kubectl cordon <node>`.
	Held Reason = "Held"
	// Skipped: the health event has `quarantineOverrides.skip`, so nothing is done about the fault. Action: none.
	Skipped Reason = "Skipped"
	// OptedOut: the Node has an opt-out label (`nvsentinel.dgxc.nvidia.com/managed=false`), so nothing is done
	// about the fault. Action: none. To have faults of the node handled, remove the label.
	OptedOut Reason = "OptedOut"
	// CoveredByReboot: a reboot cures the fault and the boot of the fault is past, so nothing is left to do.
	// Action: none.
	CoveredByReboot Reason = "CoveredByReboot"
	// Superseded: a later recovery has ended all of the fault, its machine is gone, or an operator has released
	// the node, so nothing is left to do. Action: none.
	Superseded Reason = "Superseded"
	// Cleared: the recovery has ended a fault. With the last open fault the quarantine session ends. Action: none.
	Cleared Reason = "Cleared"
	// NoOpenFault: the recovery found no open fault to end. Action: none.
	NoOpenFault Reason = "NoOpenFault"
	// DryRun: fault-quarantine runs with `--dry-run`, so the record keeps the effects of the fault and the Node is
	// not changed. Action: none. To have new faults quarantine nodes, set the chart value
	// `faultQuarantine.dryRun` to false.
	DryRun Reason = "DryRun"
)

// ClearedBy values other than a record id.
const (
	ClearedManual   = "manual"
	ClearedNodeGone = "node-gone"
	// ClearedNodeReleased: the Node, which was marked for it, was found released,
	// and its checks healthy. The store was at an older state then.
	ClearedNodeReleased = "node-released"
)

// Taint is a node taint asked for by a rule set.
type Taint struct {
	// Key and Value of the taint.
	Key   string `json:"key" toml:"key"`
	Value string `json:"value" toml:"value"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect string `json:"effect" toml:"effect"`
}

// Label is a node label asked for by a rule set.
type Label struct {
	// Key and Value of the label.
	Key   string `json:"key" toml:"key"`
	Value string `json:"value" toml:"value"`
}

// Effects are the marks a verdict asks for on the Node.
type Effects struct {
	Cordon bool    `json:"cordon"`
	Taints []Taint `json:"taints,omitempty"`
	Labels []Label `json:"labels,omitempty"`
}

// Verdict is fault-quarantine's decision on a record.
type Verdict struct {
	Reason   Reason   `json:"reason"`
	RuleSets []string `json:"rulesets,omitempty"`
	Effects  Effects  `json:"effects"`
	// NodeBootID is the boot the Node reported when the record was evaluated.
	NodeBootID string `json:"nodebootid,omitempty"`
	// Machine is the machine that the record is about by this decision, given when
	// the record bears no identity itself: its connector never saw the Node.
	Machine *NodeIdentity `json:"machine,omitempty"`
	// Detail describes what a Held fault waits for, or which rules could not be
	// evaluated.
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
}

// Fault is one entry of a record: one identity, cleared or not.
type Fault struct {
	Key              string     `json:"key"`
	ClearedTimestamp *time.Time `json:"clearedtimestamp"`
	// ClearedBy is a record id, manual, node-gone or node-released.
	ClearedBy string `json:"clearedby"`
}

// EvictionStatus is the drain's progress.
type EvictionStatus struct {
	Status  Eviction `json:"status"`
	Message string   `json:"message"`
	// LeftAlone are the UIDs of controllers, separated by commas, that put their pods
	// back on the node after every eviction: their pods hold up neither drain nor repair.
	LeftAlone string `json:"leftalone,omitempty"`
}

// Outcome is how the repair of a record's slot ended, or stands.
type Outcome string

// Outcomes of a remediation; empty is still running.
const (
	OutcomeSucceeded Outcome = "Succeeded"
	OutcomeCovered   Outcome = "Covered"
	OutcomeCanceled  Outcome = "Cancelled"
	// OutcomeNeedsHuman ends in remediation-failed with a reason a person can act on.
	OutcomeNeedsHuman Outcome = "ManualInterventionRequired"
)

// Attempt is one repair object of a slot, from the reservation of its name to its end.
type Attempt struct {
	// Ordinal counts every object of the slot and never falls.
	Ordinal   int    `json:"ordinal"`
	Group     string `json:"group"`
	Action    Action `json:"action"`
	Session   string `json:"session"`
	Machine   string `json:"machine"`
	Template  string `json:"template"`
	Digest    string `json:"digest"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	// UID is empty until the object is known to exist.
	UID         string            `json:"uid"`
	SubmittedAt time.Time         `json:"submittedat"`
	State       string            `json:"state"`
	Reason      string            `json:"reason"`
	Message     string            `json:"message"`
	Outputs     map[string]string `json:"outputs,omitempty"`
	// PriorBootID is the boot before the repair; ReplacedBootID repeats it once
	// the outcome proved that the boot was replaced.
	PriorBootID    string     `json:"priorbootid,omitempty"`
	ReplacedBootID string     `json:"replacedbootid,omitempty"`
	FinishedAt     *time.Time `json:"finishedat"`
	// SignalSent is false only if it is certain that nothing was sent.
	SignalSent bool `json:"signalsent"`
	// Chain is the RepairChain whose run the object is, or empty: the node stays in
	// quarantine until it has succeeded.
	Chain string `json:"chain,omitempty"`
	// Steps are the trace of that run.
	Steps []RepairStep `json:"steps,omitempty"`
}

// RepairStep is one step of a run of a repair chain: what its object was made of, and
// what that led to.
type RepairStep struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Template and Digest name what the object was made from.
	Template string `json:"template,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Object is kind, namespace and name; UID is empty until it is known to exist.
	Object string `json:"object,omitempty"`
	UID    string `json:"uid,omitempty"`
	// DefinitionDigest and InputDigest are of what was written last, Generation is what
	// that made.
	DefinitionDigest string        `json:"definitiondigest,omitempty"`
	InputDigest      string        `json:"inputdigest,omitempty"`
	Generation       int64         `json:"generation,omitempty"`
	Inputs           []RepairValue `json:"inputs,omitempty"`
	Outputs          []RepairValue `json:"outputs,omitempty"`
	StartedAt        *time.Time    `json:"startedat,omitempty"`
	FinishedAt       *time.Time    `json:"finishedat,omitempty"`
}

// RepairValue is an input or output of a step.
type RepairValue struct {
	Name string `json:"name"`
	// Digest of the value's YAML, "sha256:" and 64 hexadecimal digits.
	Digest  string `json:"digest"`
	Preview string `json:"preview,omitempty"`
	// InputDigest is of the inputs that an output was made of.
	InputDigest string `json:"inputdigest,omitempty"`
	// ChangedAt is when an output's digest changed last.
	ChangedAt *time.Time `json:"changedat,omitempty"`
}

// Remediation is the trace of a record's repair.
type Remediation struct {
	// Cause is the id of the record for which the objects were created.
	Cause string `json:"cause"`
	// Action is the repair that is made instead of the event's own, after an
	// escalation; empty without one.
	Action   Action    `json:"action,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`
	Outcome  Outcome   `json:"outcome"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	// Forgiven is set when a person removed the repeat offender mark from the Node: what
	// was sent up to then counts for no other mark.
	Forgiven *time.Time `json:"forgiven,omitempty"`
	// Waiting is what the repair waits for before it does something; nil when it
	// waits for nothing but its object or its recovery.
	Waiting *Wait `json:"waiting,omitempty"`
}

// Wait is what a repair waits for.
type Wait struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// Until is when it ends at the latest; nil when only the world ends it.
	Until *time.Time `json:"until,omitempty"`
}

// Status is what the services write; each field has one writer (see CheckWrite).
type Status struct {
	NodeQuarantined           Quarantine     `json:"nodequarantined"`
	QuarantineFinishTimestamp *time.Time     `json:"quarantinefinishtimestamp"`
	UserPodsEvictionStatus    EvictionStatus `json:"userpodsevictionstatus"`
	DrainFinishTimestamp      *time.Time     `json:"drainfinishtimestamp"`
	FaultRemediated           *bool          `json:"faultremediated"`
	LastRemediationTimestamp  *time.Time     `json:"lastremediationtimestamp"`
	Remediation               *Remediation   `json:"remediation"`
	QuarantineVerdict         *Verdict       `json:"quarantineverdict"`
	Session                   string         `json:"session"`
	Faults                    []Fault        `json:"faults"`
	// Extra is what the document has that this version does not know. Stores keep it
	// whatever a change contains.
	Extra *extra.Extra `json:"-"`
}

// Evaluated reports whether fault-quarantine has given a verdict.
func (r Record) Evaluated() bool { return r.Status.QuarantineVerdict != nil }

// Reason is the verdict's reason, or empty without a verdict.
func (r Record) Reason() Reason {
	if v := r.Status.QuarantineVerdict; v != nil {
		return v.Reason
	}
	return ""
}

// Retention is how long the store keeps a record on which nothing is to be done.
const Retention = 30 * 24 * time.Hour

// Expire has the store forget a record on which nothing is to be done.
func (r *Record) Expire(now time.Time) {
	if !r.Acts() {
		r.ExpireAt = new(now.Add(Retention))
	}
}

// Acts reports whether the record may change the cluster at all.
func (r Record) Acts() bool { return r.Event.ProcessingStrategy == Process }

// Acting are the records that may change the cluster, in their order. Every
// floor that acts passes what it was given through it before it decides, so that
// no single forgotten filter lets a PERSIST_ONLY record act.
func Acting(records []Record) []Record {
	if !slices.ContainsFunc(records, func(r Record) bool { return !r.Acts() }) {
		return records
	}
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !r.Acts() })
}

// IsFault reports whether the record reports a fault (an unhealthy event).
func (r Record) IsFault() bool { return !r.Event.IsHealthy }

// AllCleared reports whether every entry of faults[] is cleared; false without entries.
func (s Status) AllCleared() bool {
	for _, f := range s.Faults {
		if f.ClearedTimestamp == nil {
			return false
		}
	}
	return len(s.Faults) > 0
}

// Open reports whether the record is a fault in quarantine: Matched, PROCESS, and
// with an entry that is not cleared. Only open records hold a session.
func Open(r Record) bool {
	return r.Acts() && r.IsFault() && r.Reason() == Matched && !r.Status.AllCleared()
}

// InQuarantine reports whether the record is a fault for which its node was taken out of
// service, whether it is open or cleared since.
func InQuarantine(r Record) bool {
	q := r.Status.NodeQuarantined
	return r.IsFault() && (q == Quarantined || q == AlreadyQuarantined)
}

// DrainFinal reports whether the record's drain is over, in whatever way: nothing
// follows.
func DrainFinal(r Record) bool { return r.Status.UserPodsEvictionStatus.Status.Final() }

// DrainSucceeded reports whether the pods that had to go for the record are gone.
func DrainSucceeded(r Record) bool {
	e := r.Status.UserPodsEvictionStatus.Status
	return e == EvictionSucceeded || e == AlreadyDrained
}

// RepairAction is the action that a record is repaired by: its event's own, or the one
// it was escalated to.
func RepairAction(r Record) Action {
	if rem := r.Status.Remediation; rem != nil && rem.Action != "" {
		return rem.Action
	}
	return r.Event.EffectiveAction()
}

// Attempts are the repair objects of a record's trace, in their order.
func Attempts(r Record) []Attempt {
	if r.Status.Remediation == nil {
		return nil
	}
	return r.Status.Remediation.Attempts
}

// Pending reports whether fault-quarantine still owes the record a final verdict.
func Pending(r Record) bool {
	return r.Acts() && (!r.Evaluated() || r.Reason() == Held)
}

// Finished reports whether nothing can happen to the record any more, so that it
// may be given an expiry: PERSIST_ONLY, an evaluated recovery, a verdict other than
// Matched and Held, or every entry cleared. A verdict that this version does not know
// finishes nothing.
func Finished(r Record) bool {
	switch {
	case !r.Acts():
		return true
	case !r.Evaluated():
		return false
	case r.Event.IsHealthy && slices.Contains(reasons, r.Reason()):
		return true
	case r.Reason() == Held:
		return false
	case r.Reason() == Matched:
		return r.Status.AllCleared()
	}
	return slices.Contains(reasons, r.Reason()) // of another one nobody here knows
}

// canonical adds a stable encoding of an event to b: that of package json, which
// sorts map keys.
func canonical(b []byte, e Event) []byte {
	e.GeneratedTimestamp = e.GeneratedTimestamp.UTC()
	b, err := appendContent(b, e)
	if err != nil {
		// The one failure is a year outside 0..9999, which the connector refuses.
		return []byte("unencodable:" + e.ID)
	}
	return b
}
