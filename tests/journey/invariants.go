package journey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
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
	NoEviction     = "no pod is evicted once the session is over"
	ProvenRecovery = "no recovery without a proven reboot"
)

// check looks at what a trip left behind.
func (t *trip) check(ctx context.Context, audit *audit) ([]Violation, error) {
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
	if len(faults) < t.lines {
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
		add(NothingRepeats, "%d repair objects: %v", len(objects), objects)
	}
	if t.falseRecoveries > 0 {
		add(ProvenRecovery, "%d recoveries were reported", t.falseRecoveries)
	}
	if t.guardMustStay() {
		pod, err := t.fleet.Cluster.Client().CoreV1().Pods(fleet.UserNamespace).Get(ctx, t.guard, metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp != nil {
			add(NoEviction, "pod %s is gone: %v", t.guard, err)
		}
	}
	for _, illegal := range audit.illegal(t.node) {
		add(LegalMoves, "%s", illegal)
	}
	return out, nil
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

// audit follows every record's changes and keeps those no table allows.
type audit struct {
	moves map[record.Transition]bool

	mu   sync.Mutex
	last map[string]record.Record
	bad  map[string][]string
}

func newAudit() *audit {
	a := &audit{moves: map[record.Transition]bool{}, last: map[string]record.Record{}, bad: map[string][]string{}}
	for _, m := range record.Transitions() {
		a.moves[m] = true
	}
	// The feed may show several changes as one: what can be reached is legal.
	for grown := true; grown; {
		grown = false
		for x := range a.moves {
			for y := range a.moves {
				z := record.Transition{Field: x.Field, From: x.From, To: y.To}
				if x.Field == y.Field && x.To == y.From && !a.moves[z] {
					a.moves[z], grown = true, true
				}
			}
		}
	}
	return a
}

// follow reads the feed until ctx ends.
func (a *audit) follow(ctx context.Context, s store.Store) error {
	feed, err := s.Feed(ctx, "journey-audit", record.Selector{Name: "audit"})
	if err != nil {
		return err
	}
	for {
		r, _, err := feed.Next(ctx)
		if err != nil {
			return errors.Join(ignoreEnd(ctx, err), feed.Close())
		}
		a.see(r)
	}
}

func ignoreEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

func (a *audit) see(r record.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last[r.ID]
	a.last[r.ID] = r
	for _, m := range []record.Transition{
		{Field: "nodequarantined", From: string(before.Status.NodeQuarantined), To: string(r.Status.NodeQuarantined)},
		{Field: "userpodsevictionstatus", From: string(before.Status.UserPodsEvictionStatus.Status), To: string(r.Status.UserPodsEvictionStatus.Status)},
		{Field: "quarantineverdict", From: string(before.Reason()), To: string(r.Reason())},
	} {
		if m.From != m.To && !a.moves[m] {
			a.bad[r.Event.NodeName] = append(a.bad[r.Event.NodeName], fmt.Sprintf("record %s: %s from %q to %q", r.ID, m.Field, m.From, m.To))
		}
	}
}

func (a *audit) illegal(node string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bad[node]
}
