package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Writer is a service in its role as the author of status fields.
type Writer string

// Writers.
const (
	Connector        Writer = "platform-connectors"
	FaultQuarantine  Writer = "fault-quarantine"
	NodeDrainer      Writer = "node-drainer"
	FaultRemediation Writer = "fault-remediation"
)

// ErrNotOwner means a writer touched a field that is not its own.
var ErrNotOwner = errors.New("field belongs to another writer")

// ErrIllegalTransition means a status value may not follow the stored one.
var ErrIllegalTransition = errors.New("illegal transition")

// fields lists every status field with its only writer.
var fields = []struct {
	name  string
	owner Writer
	value func(Status) any
}{
	{"nodequarantined", FaultQuarantine, func(s Status) any { return s.NodeQuarantined }},
	{"quarantinefinishtimestamp", FaultQuarantine, func(s Status) any { return instant(s.QuarantineFinishTimestamp) }},
	{"quarantineverdict", FaultQuarantine, func(s Status) any { return s.QuarantineVerdict }},
	{"session", FaultQuarantine, func(s Status) any { return s.Session }},
	{"faults", FaultQuarantine, func(s Status) any { return s.Faults }},
	{"userpodsevictionstatus", NodeDrainer, func(s Status) any { return s.UserPodsEvictionStatus }},
	{"drainfinishtimestamp", NodeDrainer, func(s Status) any { return instant(s.DrainFinishTimestamp) }},
	{"faultremediated", FaultRemediation, func(s Status) any { return s.FaultRemediated }},
	{"lastremediationtimestamp", FaultRemediation, func(s Status) any { return instant(s.LastRemediationTimestamp) }},
	{"remediation", FaultRemediation, func(s Status) any { return s.Remediation }},
}

func instant(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}

// quarantineMoves, evictionMoves and verdictMoves are the legal transitions;
// a value may always stay as it is.
var (
	quarantineMoves = map[Quarantine][]Quarantine{
		NotQuarantined:     {Quarantined, AlreadyQuarantined, UnQuarantined},
		Quarantined:        {QuarantineCanceled},
		AlreadyQuarantined: {QuarantineCanceled},
	}
	evictionMoves = map[Eviction][]Eviction{
		EvictionUnset:      {EvictionInProgress, EvictionSucceeded, AlreadyDrained, EvictionFailed, EvictionCanceled},
		EvictionInProgress: {EvictionSucceeded, AlreadyDrained, EvictionFailed, EvictionCanceled},
	}
	verdictMoves = map[Reason][]Reason{
		"":   {Matched, NoRuleMatched, Held, Skipped, OptedOut, CoveredByReboot, Superseded, Cleared, NoOpenFault, DryRun},
		Held: {Matched, NoRuleMatched, Skipped, OptedOut, CoveredByReboot, Superseded, DryRun},
	}
)

// Transition is one legal move of one status field, for drawings and tests.
type Transition struct{ Field, From, To string }

// Transitions lists every legal move, in a fixed order.
func Transitions() []Transition {
	var out []Transition
	out = append(out, moves("nodequarantined", quarantineMoves)...)
	out = append(out, moves("userpodsevictionstatus", evictionMoves)...)
	return append(out, moves("quarantineverdict", verdictMoves)...)
}

func moves[T ~string](field string, table map[T][]T) []Transition {
	var out []Transition
	for from, tos := range table {
		for _, to := range tos {
			out = append(out, Transition{field, string(from), string(to)})
		}
	}
	slices.SortFunc(out, func(a, b Transition) int {
		if a.From != b.From {
			return compare(a.From, b.From)
		}
		return compare(a.To, b.To)
	})
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// CheckWrite checks that writer may turn status before into after: only its own
// fields changed (ErrNotOwner), and every change is a legal transition
// (ErrIllegalTransition). All problems are joined.
func CheckWrite(writer Writer, before, after Status) error {
	if before.Blank() && after.Blank() {
		return nil // an append
	}
	var problems []error
	for _, f := range fields {
		if f.owner != writer && !same(f.value(before), f.value(after)) {
			problems = append(problems, fmt.Errorf("%w: %s writes %s of %s", ErrNotOwner, writer, f.name, f.owner))
		}
	}
	problems = append(problems,
		legal("nodequarantined", quarantineMoves, before.NodeQuarantined, after.NodeQuarantined),
		legal("userpodsevictionstatus", evictionMoves, before.UserPodsEvictionStatus.Status, after.UserPodsEvictionStatus.Status),
		legal("quarantineverdict", verdictMoves, reasonOf(before), reasonOf(after)),
		monotone(before, after))
	return errors.Join(problems...)
}

func legal[T ~string](field string, table map[T][]T, from, to T) error {
	if from == to || slices.Contains(table[from], to) {
		return nil
	}
	return fmt.Errorf("%w: %s from %q to %q", ErrIllegalTransition, field, from, to)
}

// monotone guards what may only grow: sessions are set once, cleared entries
// stay cleared, repair attempts are never forgotten.
func monotone(before, after Status) error {
	var problems []error
	if before.Session != "" && after.Session != before.Session {
		problems = append(problems, fmt.Errorf("%w: quarantine session from %q to %q", ErrIllegalTransition, before.Session, after.Session))
	}
	for i, f := range before.Faults {
		if i >= len(after.Faults) || after.Faults[i].Key != f.Key {
			problems = append(problems, fmt.Errorf("%w: fault entry %q dropped", ErrIllegalTransition, f.Key))
		} else if f.ClearedTimestamp != nil && after.Faults[i].ClearedTimestamp == nil {
			problems = append(problems, fmt.Errorf("%w: fault entry %q reopened", ErrIllegalTransition, f.Key))
		}
	}
	if n := attempts(before); n > attempts(after) {
		problems = append(problems, fmt.Errorf("%w: %d of %d remediation attempts dropped", ErrIllegalTransition, n-attempts(after), n))
	}
	return errors.Join(problems...)
}

func attempts(s Status) int {
	if s.Remediation == nil {
		return 0
	}
	return len(s.Remediation.Attempts)
}

func reasonOf(s Status) Reason {
	if s.QuarantineVerdict == nil {
		return ""
	}
	return s.QuarantineVerdict.Reason
}

// same compares as the stored document would: by its JSON.
func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Drawing is the table of legal transitions as Markdown with one Mermaid state
// diagram per status field.
func Drawing() string {
	var b strings.Builder
	b.WriteString("# State transitions\n\nWritten from `record.Transitions` by `make generate`. These are the transitions of a record's status that the stores accept. They refuse every other one.\n")
	field := ""
	for _, t := range Transitions() {
		if t.Field != field {
			if field != "" {
				b.WriteString("```\n")
			}
			field = t.Field
			fmt.Fprintf(&b, "\n## %s\n\n```mermaid\nstateDiagram-v2\n", field)
		}
		from := t.From
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s\n", from, t.To)
	}
	b.WriteString("```\n")
	return b.String()
}
