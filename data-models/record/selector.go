package record

import "slices"

// Selector chooses records; its meaning is Matches, which every store's
// pushdown is compared with. Zero fields do not restrict; set fields are
// conjoined; Any adds a disjunction of further selectors.
type Selector struct {
	// Name is the selector's public name, for logs and metrics.
	Name string
	// InsertsOnly makes a feed deliver a record once, when it is appended, and
	// not again when its status changes. It has no meaning for lists.
	InsertsOnly bool

	Node        string
	Strategy    Strategy
	Healthy     *bool
	Agent       string
	NotAgent    string
	Session     string
	Quarantined []Quarantine
	Evictions   []Eviction
	// Verdicts restricts to these reasons; "" stands for unevaluated.
	Verdicts []Reason
	// Remediated is one of "", "null", "true", "false".
	Remediated string
	// Repaired restricts to records that have (or have not) a remediation trace.
	Repaired *bool
	// Open restricts to records that are (or are not) Open.
	Open *bool
	// SeqEpoch restricts to one publisher's outbox.
	SeqEpoch string

	Any []Selector
}

// Matches is the meaning of the selector.
func (s Selector) Matches(r Record) bool {
	return s.matchesEvent(r.Event) && s.matchesStatus(r) &&
		(s.SeqEpoch == "" || r.SeqEpoch == s.SeqEpoch) &&
		s.matchesAny(r)
}

func (s Selector) matchesEvent(e Event) bool {
	return (s.Node == "" || e.NodeName == s.Node) &&
		(s.Strategy == "" || e.ProcessingStrategy == s.Strategy) &&
		(s.Healthy == nil || e.IsHealthy == *s.Healthy) &&
		(s.Agent == "" || e.Agent == s.Agent) &&
		(s.NotAgent == "" || e.Agent != s.NotAgent)
}

// matchesStatus takes the record because being open depends on both its parts.
func (s Selector) matchesStatus(r Record) bool {
	st := r.Status
	return (s.Session == "" || st.Session == s.Session) &&
		in(s.Quarantined, st.NodeQuarantined) &&
		in(s.Evictions, st.UserPodsEvictionStatus.Status) &&
		in(s.Verdicts, r.Reason()) &&
		(s.Remediated == "" || s.Remediated == Remediated(st)) &&
		(s.Repaired == nil || (st.Remediation != nil) == *s.Repaired) &&
		(s.Open == nil || Open(r) == *s.Open)
}

// in reports whether an empty list, which does not restrict, or a set one allows v.
func in[T comparable](allowed []T, v T) bool {
	return len(allowed) == 0 || slices.Contains(allowed, v)
}

func (s Selector) matchesAny(r Record) bool {
	return len(s.Any) == 0 || slices.ContainsFunc(s.Any, func(a Selector) bool { return a.Matches(r) })
}

// Remediated names the three states of faultRemediated: null, true, false.
func Remediated(s Status) string {
	switch {
	case s.FaultRemediated == nil:
		return "null"
	case *s.FaultRemediated:
		return "true"
	}
	return "false"
}

// Yes and No are the pointers that Selector's optional booleans take.
func Yes() *bool { return new(true) }

// No is the pointer to false.
func No() *bool { return new(false) }

// AnalyzerAgent is the agent name of derived events.
const AnalyzerAgent = "health-events-analyzer"

// CoverageAgent is the agent name of reports about nodes without a live publisher.
const CoverageAgent = "nvsentinel-coverage"

// Coverage selects those reports, of whatever strategy.
func Coverage() Selector { return Selector{Name: "Coverage", Agent: CoverageAgent} }

// ProcessableHealthEventInserts feeds fault-quarantine: appended PROCESS events.
func ProcessableHealthEventInserts() Selector {
	return Selector{Name: "ProcessableHealthEventInserts", InsertsOnly: true, Strategy: Process}
}

// ProcessableNonFatalUnhealthyInserts feeds the analyzer. Despite its public
// name it does not test isFatal.
func ProcessableNonFatalUnhealthyInserts() Selector {
	return Selector{Name: "ProcessableNonFatalUnhealthyInserts", InsertsOnly: true, Strategy: Process, Healthy: No(), NotAgent: AnalyzerAgent}
}

// AnalyzerCauses feeds the analyzer with what can end a derived fault, or change
// what its rules count: recoveries, what was decided on faults, and what it
// published before, whatever its strategy.
func AnalyzerCauses() Selector {
	return Selector{Name: "AnalyzerCauses", Any: []Selector{
		{Strategy: Process, Healthy: Yes()},
		{Strategy: Process, Verdicts: []Reason{Matched, CoveredByReboot, Superseded}},
		{Agent: AnalyzerAgent},
	}}
}

// NodeQuarantineStatus feeds node-drainer: records whose quarantine changed.
func NodeQuarantineStatus() Selector {
	return Selector{
		Name: "NodeQuarantineStatus", Strategy: Process,
		Quarantined: []Quarantine{Quarantined, AlreadyQuarantined, UnQuarantined, QuarantineCanceled},
	}
}

// QuarantinedAndDrainedNodes feeds fault-remediation: drained records of a
// quarantined node, and records that released one.
func QuarantinedAndDrainedNodes() Selector {
	return Selector{
		Name: "QuarantinedAndDrainedNodes", Strategy: Process,
		Any: []Selector{
			{Quarantined: []Quarantine{Quarantined, AlreadyQuarantined}, Evictions: []Eviction{EvictionSucceeded, AlreadyDrained}},
			{Quarantined: []Quarantine{UnQuarantined, QuarantineCanceled}},
		},
	}
}

// AllHealthEventInserts feeds the exporter: every appended record.
func AllHealthEventInserts() Selector {
	return Selector{Name: "AllHealthEventInserts", InsertsOnly: true}
}

// BacklogOfNode is what fault-quarantine evaluates together: the unevaluated and
// Held PROCESS records of a node, or of all nodes when node is empty.
func BacklogOfNode(node string) Selector {
	return Selector{Name: "Backlog", Node: node, Strategy: Process, Verdicts: []Reason{"", Held}}
}

// OpenOfNode selects the open records of a node, or of all nodes.
func OpenOfNode(node string) Selector {
	return Selector{Name: "Open", Node: node, Open: Yes()}
}
