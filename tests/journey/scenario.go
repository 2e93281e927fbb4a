package journey

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// Scenario is what happens to a node while services die.
type Scenario string

// Scenarios.
const (
	// OneFault: an XID 79, the whole way.
	OneFault Scenario = "one fault"
	// TwoFaults: two faults 90 ms apart on different GPUs with different actions.
	TwoFaults Scenario = "two faults"
	// ByHand: a person uncordons the node in mid-drain.
	ByHand Scenario = "uncordoned by hand"
	// Recovered: every fault is cleared in mid-drain.
	Recovered Scenario = "recovered in mid-drain"
	// Returned: the Node object is deleted in mid-drain and the same machine
	// registers again.
	Returned Scenario = "deleted and back"
	// Replaced: another machine takes the node's name in mid-drain.
	Replaced Scenario = "another machine"
	// TooLate: a person releases the node when the maintenance object exists and
	// the janitor, which was frozen, has not acted on it.
	TooLate Scenario = "released before the signal"
	// OutboxLost: the monitor's state is lost in mid-drain, which proves no
	// reboot; a person ends the session.
	OutboxLost Scenario = "outbox lost"
	// Emptied: the store loses every record in mid-drain, and nobody tells it
	// again; a person ends the session.
	Emptied Scenario = "store emptied"
	// Restored: in mid-drain the store is put back to what it was before the
	// fault, of which the node's connector tells it again.
	Restored Scenario = "store restored to before the fault"
	// RestoredLate: after the repair, when the node is in service, the store is
	// put back to what it was in mid-drain.
	RestoredLate Scenario = "store restored to mid-drain"
)

// Scenarios is the round of stories that the seeds go through: about every second
// one is repaired to the end. Their number has no factor in common with that of
// the set-ups, nor with that of a batch's seeds, so that all pairs are met.
func Scenarios() []Scenario {
	return []Scenario{
		OneFault, ByHand, TwoFaults, Recovered, Emptied, Replaced, TwoFaults, TooLate, Returned, Restored, OneFault, OutboxLost, RestoredLate,
	}
}

// reboots is how often the node must have been rebooted in the end.
func (s Scenario) reboots() int {
	switch s {
	case OneFault, TwoFaults, Returned, Restored, RestoredLate:
		return 1
	case ByHand, Recovered, Replaced, TooLate, OutboxLost, Emptied:
	}
	return 0
}

// guarded says whether the drain has to be held up by a disruption budget.
func (s Scenario) guarded() bool {
	return s == ByHand || s == Recovered || s == Replaced || s == Returned || s == OutboxLost || s.forgets()
}

// forgets says whether the store loses what it knew.
func (s Scenario) forgets() bool { return s == Emptied || s == Restored || s == RestoredLate }

// trip is one scenario on one node.
type trip struct {
	fleet    *fleet.Fleet
	scenario Scenario
	node     string
	lines    int
	lost     int // lines of which the store need not know any more
	limit    time.Duration
	moved    atomic.Value // how far the faults were at the last look that had an answer
	load     *load
	// endLoad stops the load and waits for its end.
	endLoad func() error
	// answered counts the door's answers to malformed events, wrongAnswers are
	// those it should not have given.
	answered     atomic.Int64
	wrongAnswers []string
	// guard is the pod whose disruption budget holds the drain up; once the
	// session is over nobody may evict it.
	guard string
	// restore puts the store back; unproven are the moments in which a node was
	// taken for well because the store did not know better.
	restore func(context.Context) error
	// toldAgain says that an emptied store is told of the fault again, whatever
	// became of it.
	toldAgain bool
	unproven  []string
	// beside says that a foreign transaction was open, heldUp what waited for it.
	beside bool
	heldUp string
}

func (t *trip) run(ctx context.Context) error {
	if t.scenario.guarded() {
		t.guard = "guard-" + t.node
		if err := t.placeGuard(ctx); err != nil {
			return err
		}
	}
	if t.scenario == Restored {
		if err := t.backUp(ctx); err != nil {
			return err
		}
	}
	if t.scenario == TooLate {
		t.freezeJanitor(true)
		defer t.freezeJanitor(false)
	}
	if err := t.fault(3, 79); err != nil {
		return err
	}
	if t.scenario == TwoFaults {
		pause(ctx, 90*time.Millisecond)
		if err := t.fault(5, 95); err != nil {
			return err
		}
	}
	if t.scenario.guarded() {
		if err := t.until(ctx, "the drain to be held up by the budget", t.draining); err != nil {
			return err
		}
		if err := t.cutShort(ctx); err != nil {
			return err
		}
	}
	if t.scenario == TooLate {
		return t.releaseBeforeTheSignal(ctx)
	}
	if t.scenario == RestoredLate {
		if err := t.restoredLate(ctx); err != nil {
			return err
		}
	}
	if err := t.until(ctx, "the end: all faults closed, no mark left", t.over); err != nil || !t.guardMustStay() {
		return err
	}
	// With the budget gone nothing but a wrong eviction could take the pod.
	err := t.endGuard(ctx)
	pause(ctx, 1500*time.Millisecond)
	return err
}

func (t *trip) freezeJanitor(frozen bool) {
	for _, s := range t.fleet.Replicas("janitor") {
		s.Freeze(frozen)
	}
}

// endGuard takes the disruption budget away.
func (t *trip) endGuard(ctx context.Context) error {
	return t.insist(ctx, "the budget to go", func(ctx context.Context) error {
		err := t.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(fleet.UserNamespace).Delete(ctx, t.guard, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// guardMustStay says whether the guard's pod outlives the trip.
func (t *trip) guardMustStay() bool {
	return t.guard != "" && t.scenario != Replaced && t.scenario.reboots() == 0
}

func (t *trip) releaseBeforeTheSignal(ctx context.Context) error {
	err := t.until(ctx, "the maintenance object", func(ctx context.Context) (bool, error) {
		names, err := t.repairs(ctx)
		return len(names) > 0, err
	})
	if err != nil {
		return err
	}
	if err := t.uncordon(ctx); err != nil {
		return err
	}
	if err := t.until(ctx, "the end: all faults closed, no mark left", t.over); err != nil {
		return err
	}
	t.freezeJanitor(false)
	return t.until(ctx, "the janitor to close the object", func(ctx context.Context) (bool, error) {
		list, err := t.objects(ctx)
		for _, x := range list {
			if done, _, _ := unstructured.NestedString(x.Object, "status", "completionTime"); done == "" {
				return false, err
			}
		}
		return len(list) > 0, err
	})
}

func (t *trip) fault(gpu, xid int) error {
	t.lines++
	_, err := t.fleet.WriteXID(t.node, gpu, xid)
	return err
}

func (t *trip) placeGuard(ctx context.Context) error {
	cluster := t.fleet.Cluster
	err := t.insist(ctx, "the guard", func(ctx context.Context) error {
		_, err := cluster.AddPod(ctx, localcluster.PodSpec{Namespace: fleet.UserNamespace, Name: t.guard, Node: t.node, GPUs: 1})
		return unlessThere(err)
	})
	if err != nil {
		return err
	}
	// It wants one pod more than there is: with enough of them, the API server would
	// let go one that is not ready, as after an outage in which the Node's Lease ran
	// out, before the budget's status knows.
	err = t.insist(ctx, "the guard's budget", func(ctx context.Context) error {
		_, err := cluster.AddPDB(ctx, fleet.UserNamespace, t.guard, 2)
		return unlessThere(err)
	})
	if err != nil {
		return err
	}
	return t.insist(ctx, "the guard to run", func(ctx context.Context) error {
		_, err := cluster.WaitForPods(ctx, fleet.UserNamespace, t.guard, 1)
		return err
	})
}

func unlessThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (t *trip) draining(ctx context.Context) (bool, error) {
	records, err := t.records(ctx)
	for _, r := range records {
		if r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress {
			return true, err
		}
	}
	return false, err
}

func (t *trip) cutShort(ctx context.Context) error {
	switch t.scenario {
	case ByHand:
		return t.uncordon(ctx)
	case Recovered:
		return t.insist(ctx, "the connector to take a recovery", t.recover)
	case Replaced:
		// What the old machine's disk held goes with it.
		if err := t.endLoad(); err != nil {
			return err
		}
		if err := t.until(ctx, "the load to be stored", t.loadStored); err != nil {
			return err
		}
		return t.insist(ctx, "another machine", func(ctx context.Context) error { return t.fleet.ReplaceMachine(ctx, t.node) })
	case Returned:
		return t.comeBack(ctx)
	case OutboxLost:
		return t.loseOutbox(ctx)
	case Emptied:
		return t.emptied(ctx)
	case Restored:
		return t.restored(ctx)
	case RestoredLate:
		if err := t.backUp(ctx); err != nil {
			return err
		}
		return t.endGuard(ctx)
	case OneFault, TwoFaults, TooLate:
	}
	return fmt.Errorf("scenario %s is not cut short", t.scenario)
}

func (t *trip) loadStored(ctx context.Context) (bool, error) {
	missing, err := t.load.missing(ctx)
	return len(missing) == 0, err
}

// comeBack deletes the Node and lets its machine register again, after which
// the drain may go on.
func (t *trip) comeBack(ctx context.Context) error {
	var was *corev1.Node
	for what, do := range [...]func(context.Context) error{
		func(ctx context.Context) (err error) { was, err = t.fleet.Node(ctx, t.node); return err },
		func(ctx context.Context) error { return t.fleet.Gone(ctx, was) },
		func(ctx context.Context) error { return t.fleet.Returned(ctx, was) },
	} {
		if err := t.insist(ctx, [...]string{"the node", "the node to be deleted", "the node to be back"}[what], do); err != nil {
			return err
		}
	}
	return t.endGuard(ctx)
}

// loseOutbox takes the monitor's state away and leaves it time to report a
// recovery that it may not report.
func (t *trip) loseOutbox(ctx context.Context) error {
	if err := t.fleet.LoseState(t.node); err != nil {
		return err
	}
	pause(ctx, 3*time.Second)
	recovered := 0
	err := t.insist(ctx, "the records", func(ctx context.Context) (err error) {
		recovered, err = t.recoveries(ctx)
		return err
	})
	if err != nil || recovered > 0 {
		return err
	}
	return t.uncordon(ctx)
}

// byHand is who the cluster's administrator is.
const byHand = "local-cluster-admin"

// uncordon is a person's hand, who says by the same write that the quarantine session has ended, as
// nvsentinel release does: an uncordon alone releases nothing in a repair.
func (t *trip) uncordon(ctx context.Context) error {
	return t.insist(ctx, "a person's uncordon", func(ctx context.Context) error {
		node, err := t.fleet.Node(ctx, t.node)
		if err != nil {
			return err
		}
		change := map[string]any{"spec": map[string]any{"unschedulable": false}}
		if session := nodemark.Session(node); session != "" {
			key, value := nodemark.Request{Session: session, By: byHand, Reason: "by hand"}.Annotation()
			change["metadata"] = map[string]any{"annotations": map[string]any{key: value}}
		}
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		_, err = t.fleet.Cluster.Client().CoreV1().Nodes().Patch(ctx, t.node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// recover reports at the node's own door that all GPUs are well, as a GPU
// reset's acknowledgement would.
func (t *trip) recover(ctx context.Context) error {
	conn, err := dial(t.fleet, t.node)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Agent: fleet.Monitor, ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsHealthy: true, NodeName: t.node,
		Message: record.HealthyMessage, GeneratedTimestamp: timestamppb.Now(),
	}}})
	return err
}
