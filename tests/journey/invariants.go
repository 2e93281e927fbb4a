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
	NotHeldUp      = "a foreign transaction holds nothing up"
	Explained      = "nvsentinel why names what a stranded node waits for"
)

// Invariants lists them all.
func Invariants() []string {
	return []string{
		OneReboot, NoStraySignal, NoMarkLeft, NothingLost, LegalMoves, CleanStart, ItEnds, NothingRepeats, NoEviction,
		ProvenRecovery, NothingAgain, BadInput, Explained, ProvenRelease, NotHeldUp,
	}
}

// settle waits until what was acknowledged has had time to be stored, and
// checks.
func (t *trip) settle(ctx context.Context, j *Journey, checked map[string]int) ([]Violation, error) {
	// That it never is stored, is what check finds.
	_ = t.until(ctx, "the load to be stored", t.loadStored)
	if t.scenario.forgets() {
		// A connector may have told the store of a fault again since the story's end.
		_ = t.until(ctx, "what the store was told of again to be judged", t.over)
	}
	var found []Violation
	err := t.insist(ctx, "the facts to be read", func(ctx context.Context) (err error) {
		found, err = t.check(ctx, j)
		return err
	})
	for _, i := range Invariants() {
		if t.applies(i) {
			checked[i]++
		}
	}
	return found, err
}

// applies says whether the story can break an invariant at all.
func (t *trip) applies(invariant string) bool {
	switch invariant {
	case OneReboot:
		return t.scenario.reboots() > 0
	case NoStraySignal:
		return t.scenario.reboots() == 0
	case LegalMoves:
		return !t.scenario.forgets()
	case CleanStart:
		return t.scenario == Replaced
	case NoMarkLeft:
		return t.scenario != Replaced
	case NoEviction:
		return t.guardMustStay()
	case ProvenRelease:
		return t.scenario.forgets()
	case NotHeldUp:
		return t.beside
	case Explained:
		return false // counted where a node is stranded
	case ProvenRecovery:
		return t.scenario == OutboxLost
	}
	return true
}

// check looks at what a trip left behind.
func (t *trip) check(ctx context.Context, j *Journey) ([]Violation, error) {
	var out []Violation
	add := func(invariant, format string, args ...any) {
		out = append(out, Violation{invariant, t.node + ": " + fmt.Sprintf(format, args...)})
	}
	books, err := t.fleet.Books()
	if err != nil {
		return nil, err
	}
	reboots, keys := 0, map[string]int{}
	for _, e := range books {
		if e.Node == t.node && e.Effect == "rebooted" {
			reboots++
			keys[e.Key]++
		}
	}
	for _, moment := range t.unproven {
		add(ProvenRelease, "%s", moment)
	}
	if t.heldUp != "" {
		add(NotHeldUp, "%s", t.heldUp)
	}
	switch want := t.scenario.reboots(); {
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
	left, err := t.marks(ctx)
	if err != nil {
		return nil, err
	}
	for _, mark := range left {
		invariant := NoMarkLeft
		if t.scenario == Replaced {
			invariant = CleanStart
		}
		add(invariant, "%s", mark)
	}
	faults, err := t.faults(ctx)
	if err != nil {
		return nil, err
	}
	if len(faults) < t.lines-t.lost {
		add(NothingLost, "%d fault records of %d lines", len(faults), t.lines)
	}
	if len(faults) > t.lines {
		add(NothingRepeats, "%d fault records of %d lines", len(faults), t.lines)
	}
	for _, r := range faults {
		if !record.Finished(r) {
			add(ItEnds, "record %s is open: verdict %q, drain %q", r.ID, r.Reason(), r.Status.UserPodsEvictionStatus.Status)
		}
	}
	objects, err := t.repairs(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) > 1 {
		add(NothingRepeats, "%d maintenance objects: %v", len(objects), objects)
	}
	if t.scenario == OutboxLost {
		n, err := t.recoveries(ctx)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			add(ProvenRecovery, "%d recoveries were reported", n)
		}
	}
	if t.guardMustStay() {
		pod, err := t.fleet.Cluster.Client().CoreV1().Pods(fleet.UserNamespace).Get(ctx, t.guard, metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp != nil {
			add(NoEviction, "pod %s is gone: %v", t.guard, err)
		}
	}
	if !t.scenario.forgets() { // a store that is put back shows what has ended
		for _, illegal := range j.audit.illegal(t.node) {
			add(LegalMoves, "%s", illegal)
		}
	}
	for _, again := range j.sessions.again(t.node) {
		add(NothingAgain, "%s", again)
	}
	more, err := t.checkLoad(ctx)
	return append(out, more...), err
}

// checkLoad checks what was published beside the faults.
func (t *trip) checkLoad(ctx context.Context) ([]Violation, error) {
	var out []Violation
	missing, err := t.load.missing(ctx)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		out = append(out, Violation{NothingLost, fmt.Sprintf("%s: %d of %d acknowledged events are not stored: %.200v", t.node, len(missing), t.load.count(), missing)})
	}
	misjudged, err := t.misjudged(ctx)
	for _, bad := range append(misjudged, t.wrongAnswers...) {
		out = append(out, Violation{BadInput, t.node + ": " + bad})
	}
	return out, err
}

// marks lists every mark of ours on the node.
func (t *trip) marks(ctx context.Context) ([]string, error) {
	node, err := t.fleet.Node(ctx, t.node)
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
