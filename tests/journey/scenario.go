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
	// ManualUncordon: a person uncordons the node in mid-drain.
	ManualUncordon Scenario = "uncordoned by hand"
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
	// Emptied: the store loses every record in mid-drain, and nobody reports it
	// again; a person ends the session.
	Emptied Scenario = "store emptied"
	// Restored: in mid-drain the store is put back to what it was before the
	// fault, and the node's connector reports the fault again.
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
		OneFault, ManualUncordon, TwoFaults, Recovered, Emptied, Replaced, TwoFaults, TooLate, Returned, Restored, OneFault, OutboxLost, RestoredLate,
	}
}

// reboots is how often the node must have been rebooted in the end.
func (s Scenario) reboots() int {
	switch s {
	case OneFault, TwoFaults, Returned, Restored, RestoredLate:
		return 1
	case ManualUncordon, Recovered, Replaced, TooLate, OutboxLost, Emptied:
	}
	return 0
}

// guarded reports whether the drain has to be held up by a disruption budget.
func (s Scenario) guarded() bool {
	return s == ManualUncordon || s == Recovered || s == Replaced || s == Returned || s == OutboxLost || s.forgets()
}

// forgets reports whether the store loses what it knew.
func (s Scenario) forgets() bool { return s == Emptied || s == Restored || s == RestoredLate }

// scenarioRun is one scenario on one node.
type scenarioRun struct {
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
	// answered counts the connector's answers to malformed events, badAnswers are
	// those it should not have given.
	answered   atomic.Int64
	badAnswers []string
	// guard is the pod whose disruption budget holds the drain up; once the
	// session is over nobody may evict it.
	guard string
	// restore puts the store back; unproven are the moments in which a node was
	// taken for well because the store did not know better.
	restore func(context.Context) error
	// replayed means that the fault is reported to an emptied store again, whatever became of
	// it.
	replayed bool
	unproven []string
	// beside means that a foreign transaction was open; blockedBy is what waited for it.
	beside    bool
	blockedBy string
}

func (sr *scenarioRun) run(ctx context.Context) error {
	if sr.scenario.guarded() {
		sr.guard = "guard-" + sr.node
		if err := sr.placeGuard(ctx); err != nil {
			return err
		}
	}
	if sr.scenario == Restored {
		if err := sr.backUp(ctx); err != nil {
			return err
		}
	}
	if sr.scenario == TooLate {
		sr.freezeJanitor(true)
		defer sr.freezeJanitor(false)
	}
	if err := sr.fault(3, 79); err != nil {
		return err
	}
	if sr.scenario == TwoFaults {
		pause(ctx, 90*time.Millisecond)
		if err := sr.fault(5, 95); err != nil {
			return err
		}
	}
	if sr.scenario.guarded() {
		if err := sr.until(ctx, "the drain to be held up by the budget", sr.draining); err != nil {
			return err
		}
		if err := sr.cutShort(ctx); err != nil {
			return err
		}
	}
	if sr.scenario == TooLate {
		return sr.releaseBeforeTheSignal(ctx)
	}
	if sr.scenario == RestoredLate {
		if err := sr.restoredLate(ctx); err != nil {
			return err
		}
	}
	if err := sr.until(ctx, "the end: all faults closed, no mark left", sr.over); err != nil || !sr.guardMustStay() {
		return err
	}
	// With the budget gone nothing but a wrong eviction could take the pod.
	err := sr.endGuard(ctx)
	pause(ctx, 1500*time.Millisecond)
	return err
}

func (sr *scenarioRun) freezeJanitor(frozen bool) {
	for _, s := range sr.fleet.Replicas("janitor") {
		s.Freeze(frozen)
	}
}

// endGuard takes the disruption budget away.
func (sr *scenarioRun) endGuard(ctx context.Context) error {
	return sr.insist(ctx, "the budget to go", func(ctx context.Context) error {
		err := sr.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(fleet.UserNamespace).Delete(ctx, sr.guard, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// guardMustStay reports whether the guard's pod outlives the trip.
func (sr *scenarioRun) guardMustStay() bool {
	return sr.guard != "" && sr.scenario != Replaced && sr.scenario.reboots() == 0
}

func (sr *scenarioRun) releaseBeforeTheSignal(ctx context.Context) error {
	err := sr.until(ctx, "the maintenance object", func(ctx context.Context) (bool, error) {
		names, err := sr.repairs(ctx)
		return len(names) > 0, err
	})
	if err != nil {
		return err
	}
	if err := sr.uncordon(ctx); err != nil {
		return err
	}
	if err := sr.until(ctx, "the end: all faults closed, no mark left", sr.over); err != nil {
		return err
	}
	sr.freezeJanitor(false)
	return sr.until(ctx, "the janitor to close the object", func(ctx context.Context) (bool, error) {
		list, err := sr.objects(ctx)
		for _, x := range list {
			if done, _, _ := unstructured.NestedString(x.Object, "status", "completionTime"); done == "" {
				return false, err
			}
		}
		return len(list) > 0, err
	})
}

func (sr *scenarioRun) fault(gpu, xid int) error {
	sr.lines++
	_, err := sr.fleet.WriteXID(sr.node, gpu, xid)
	return err
}

func (sr *scenarioRun) placeGuard(ctx context.Context) error {
	cluster := sr.fleet.Cluster
	err := sr.insist(ctx, "the guard", func(ctx context.Context) error {
		_, err := cluster.AddPod(ctx, localcluster.PodSpec{Namespace: fleet.UserNamespace, Name: sr.guard, Node: sr.node, GPUs: 1})
		return unlessThere(err)
	})
	if err != nil {
		return err
	}
	// It wants one pod more than there is: with enough of them, the API server would permit the
	// eviction of one that is not ready, as after an outage in which the Node's Lease ran out,
	// before the budget's status knows.
	err = sr.insist(ctx, "the guard's budget", func(ctx context.Context) error {
		_, err := cluster.AddPDB(ctx, fleet.UserNamespace, sr.guard, 2)
		return unlessThere(err)
	})
	if err != nil {
		return err
	}
	return sr.insist(ctx, "the guard to run", func(ctx context.Context) error {
		_, err := cluster.WaitForPods(ctx, fleet.UserNamespace, sr.guard, 1)
		return err
	})
}

func unlessThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (sr *scenarioRun) draining(ctx context.Context) (bool, error) {
	records, err := sr.records(ctx)
	for _, r := range records {
		if r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress {
			return true, err
		}
	}
	return false, err
}

func (sr *scenarioRun) cutShort(ctx context.Context) error {
	switch sr.scenario {
	case ManualUncordon:
		return sr.uncordon(ctx)
	case Recovered:
		return sr.insist(ctx, "the connector to take a recovery", sr.recover)
	case Replaced:
		// What the old machine's disk held goes with it.
		if err := sr.endLoad(); err != nil {
			return err
		}
		if err := sr.until(ctx, "the load to be stored", sr.loadStored); err != nil {
			return err
		}
		return sr.insist(ctx, "another machine", func(ctx context.Context) error { return sr.fleet.ReplaceMachine(ctx, sr.node) })
	case Returned:
		return sr.comeBack(ctx)
	case OutboxLost:
		return sr.loseOutbox(ctx)
	case Emptied:
		return sr.emptied(ctx)
	case Restored:
		return sr.restored(ctx)
	case RestoredLate:
		if err := sr.backUp(ctx); err != nil {
			return err
		}
		return sr.endGuard(ctx)
	case OneFault, TwoFaults, TooLate:
	}
	return fmt.Errorf("scenario %s is not cut short", sr.scenario)
}

func (sr *scenarioRun) loadStored(ctx context.Context) (bool, error) {
	missing, err := sr.load.missing(ctx)
	return len(missing) == 0, err
}

// comeBack deletes the Node and lets its machine register again, after which
// the drain may go on.
func (sr *scenarioRun) comeBack(ctx context.Context) error {
	var was *corev1.Node
	for what, do := range [...]func(context.Context) error{
		func(ctx context.Context) (err error) { was, err = sr.fleet.Node(ctx, sr.node); return err },
		func(ctx context.Context) error { return sr.fleet.DeleteNode(ctx, was) },
		func(ctx context.Context) error { return sr.fleet.Returned(ctx, was) },
	} {
		if err := sr.insist(ctx, [...]string{"the node", "the node to be deleted", "the node to be back"}[what], do); err != nil {
			return err
		}
	}
	return sr.endGuard(ctx)
}

// loseOutbox takes the monitor's state away and leaves it time to report a
// recovery that it may not report.
func (sr *scenarioRun) loseOutbox(ctx context.Context) error {
	if err := sr.fleet.LoseState(sr.node); err != nil {
		return err
	}
	pause(ctx, 3*time.Second)
	recovered := 0
	err := sr.insist(ctx, "the records", func(ctx context.Context) (err error) {
		recovered, err = sr.recoveries(ctx)
		return err
	})
	if err != nil || recovered > 0 {
		return err
	}
	return sr.uncordon(ctx)
}

// adminUser is who the cluster's administrator is.
const adminUser = "local-cluster-admin"

// uncordon acts as a person who uncordons and marks the quarantine session as ended in the same
// write, as nvsentinel release does: an uncordon alone releases nothing in a repair.
func (sr *scenarioRun) uncordon(ctx context.Context) error {
	return sr.insist(ctx, "a person's uncordon", func(ctx context.Context) error {
		node, err := sr.fleet.Node(ctx, sr.node)
		if err != nil {
			return err
		}
		change := map[string]any{"spec": map[string]any{"unschedulable": false}}
		if session := nodemark.Session(node); session != "" {
			key, value := nodemark.Request{Session: session, By: adminUser, Reason: "by hand"}.Annotation()
			change["metadata"] = map[string]any{"annotations": map[string]any{key: value}}
		}
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		_, err = sr.fleet.Cluster.Client().CoreV1().Nodes().Patch(ctx, sr.node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// recover reports at the node's own ingest endpoint that all GPUs are well, as a GPU
// reset's acknowledgement would.
func (sr *scenarioRun) recover(ctx context.Context) error {
	conn, err := dial(sr.fleet, sr.node)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Agent: fleet.Monitor, ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsHealthy: true, NodeName: sr.node,
		Message: record.HealthyMessage, GeneratedTimestamp: timestamppb.Now(),
	}}})
	return err
}
