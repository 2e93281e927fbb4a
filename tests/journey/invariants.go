package journey

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// Violation is a broken invariant.
type Violation struct{ Invariant, Detail string }

func (v Violation) String() string { return v.Invariant + ": " + v.Detail }

// Invariants that every trip must keep.
const (
	OneReboot      = "one reboot per fault session"
	NoStraySignal  = "no signal for a node whose faults were all cleared before it"
	NoMarkLeft     = "no mark left on a healthy node"
	NothingLost    = "no acknowledged event missing"
	LegalMoves     = "no illegal transition in the store"
	CleanStart     = "a re-created node starts clean"
	ItEnds         = "every trip ends"
	NothingRepeats = "nothing is applied twice"
	NoEviction     = "no pod is evicted once the quarantine session has ended"
	ProvenRecovery = "no recovery without a proven reboot"
	NothingAgain   = "no session comes back after its end"
	BadInput       = "malformed events are answered and change nothing"
	ProvenRelease  = "what the store has forgotten puts no broken node into service and reboots no healthy one"
	NotBlocked     = "a foreign transaction holds nothing up"
	Explained      = "nvsentinel why names what a stranded node waits for"
)

// Invariants lists them all.
func Invariants() []string {
	return []string{
		OneReboot, NoStraySignal, NoMarkLeft, NothingLost, LegalMoves, CleanStart, ItEnds, NothingRepeats, NoEviction,
		ProvenRecovery, NothingAgain, BadInput, Explained, ProvenRelease, NotBlocked,
	}
}

// settle waits until what was acknowledged has had time to be stored, and
// checks.
func (sr *scenarioRun) settle(ctx context.Context, j *Journey, checked map[string]int) ([]Violation, error) {
	// That it never is stored, is what check finds.
	_ = sr.until(ctx, "the load to be stored", sr.loadStored)
	if sr.scenario.forgets() {
		// A connector may have reported a fault to the store again since the story's end.
		_ = sr.until(ctx, "what the store was told of again to be judged", sr.over)
	}
	var found []Violation
	err := sr.insist(ctx, "the facts to be read", func(ctx context.Context) (err error) {
		found, err = sr.check(ctx, j)
		return err
	})
	for _, i := range Invariants() {
		if sr.applies(i) {
			checked[i]++
		}
	}
	return found, err
}

// applies reports whether the story can break an invariant at all.
func (sr *scenarioRun) applies(invariant string) bool {
	switch invariant {
	case OneReboot:
		return sr.scenario.reboots() > 0
	case NoStraySignal:
		return sr.scenario.reboots() == 0
	case LegalMoves:
		return !sr.scenario.forgets()
	case CleanStart:
		return sr.scenario == Replaced
	case NoMarkLeft:
		return sr.scenario != Replaced
	case NoEviction:
		return sr.guardMustStay()
	case ProvenRelease:
		return sr.scenario.forgets()
	case NotBlocked:
		return sr.beside
	case Explained:
		return false // counted where a node is stuck
	case ProvenRecovery:
		return sr.scenario == OutboxLost
	}
	return true
}

// check looks at what a trip left behind.
func (sr *scenarioRun) check(ctx context.Context, j *Journey) ([]Violation, error) {
	var out []Violation
	add := func(invariant, format string, args ...any) {
		out = append(out, Violation{invariant, sr.node + ": " + fmt.Sprintf(format, args...)})
	}
	journal, err := sr.fleet.JournalEntries()
	if err != nil {
		return nil, err
	}
	reboots, keys := 0, map[string]int{}
	for _, e := range journal {
		if e.Node == sr.node && e.Effect == "rebooted" {
			reboots++
			keys[e.Key]++
		}
	}
	for _, moment := range sr.unproven {
		add(ProvenRelease, "%s", moment)
	}
	if sr.blockedBy != "" {
		add(NotBlocked, "%s", sr.blockedBy)
	}
	switch want := sr.scenario.reboots(); {
	case want == 0 && reboots > 0:
		add(NoStraySignal, "rebooted %d times", reboots)
	case want > 0 && reboots != want:
		add(OneReboot, "rebooted %d times, want %d", reboots, want)
	}
	for key, n := range keys {
		if n > 1 {
			add(NothingRepeats, "key %s was executed %d times", key, n)
		}
	}
	left, err := sr.marks(ctx)
	if err != nil {
		return nil, err
	}
	for _, mark := range left {
		invariant := NoMarkLeft
		if sr.scenario == Replaced {
			invariant = CleanStart
		}
		add(invariant, "%s", mark)
	}
	faults, err := sr.faults(ctx)
	if err != nil {
		return nil, err
	}
	if len(faults) < sr.lines-sr.lost {
		add(NothingLost, "%d fault records of %d lines", len(faults), sr.lines)
	}
	if len(faults) > sr.lines {
		add(NothingRepeats, "%d fault records of %d lines", len(faults), sr.lines)
	}
	for _, r := range faults {
		if !record.Finished(r) {
			add(ItEnds, "record %s is open: verdict %q, drain %q", r.ID, r.Reason(), r.Status.UserPodsEvictionStatus.Status)
		}
	}
	objects, err := sr.repairs(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) > 1 {
		add(NothingRepeats, "%d maintenance objects: %v", len(objects), objects)
	}
	if sr.scenario == OutboxLost {
		n, err := sr.recoveries(ctx)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			add(ProvenRecovery, "%d recoveries were reported", n)
		}
	}
	if sr.guardMustStay() {
		pod, err := sr.fleet.Cluster.Client().CoreV1().Pods(fleet.UserNamespace).Get(ctx, sr.guard, metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp != nil {
			add(NoEviction, "pod %s is gone: %v", sr.guard, err)
		}
	}
	if !sr.scenario.forgets() { // a store that is put back shows what has ended
		for _, illegal := range j.audit.illegal(sr.node) {
			add(LegalMoves, "%s", illegal)
		}
	}
	for _, again := range j.sessions.again(sr.node) {
		add(NothingAgain, "%s", again)
	}
	more, err := sr.checkLoad(ctx)
	return append(out, more...), err
}

// checkLoad checks what was published beside the faults.
func (sr *scenarioRun) checkLoad(ctx context.Context) ([]Violation, error) {
	var out []Violation
	missing, err := sr.load.missing(ctx)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		out = append(out, Violation{NothingLost, fmt.Sprintf("%s: %d of %d acknowledged events are not stored: %.200v", sr.node, len(missing), sr.load.count(), missing)})
	}
	wrong, err := sr.wrongResults(ctx)
	for _, bad := range append(wrong, sr.badAnswers...) {
		out = append(out, Violation{BadInput, sr.node + ": " + bad})
	}
	return out, err
}

// marks lists every mark of NVSentinel on the node.
func (sr *scenarioRun) marks(ctx context.Context) ([]string, error) {
	node, err := sr.fleet.Node(ctx, sr.node)
	if err != nil {
		return nil, err
	}
	var out []string
	for key, value := range node.Annotations {
		if strings.HasPrefix(key, "quarantineHealthEvent") || key == nodemark.SessionAnnotation || key == nodemark.RepairAnnotation ||
			key == nodemark.LatestFaultRemediationState {
			out = append(out, fmt.Sprintf("annotation %s=%.60s", key, value))
		}
	}
	if state := node.Labels[nodemark.StateLabel]; state != "" {
		out = append(out, "label "+nodemark.StateLabel+"="+state)
	}
	if node.Spec.Unschedulable {
		out = append(out, "cordon")
	}
	return out, nil
}
