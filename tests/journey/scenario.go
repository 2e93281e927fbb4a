package journey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/tests/demo"
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
	// Replaced: another machine takes the node's name in mid-drain.
	Replaced Scenario = "another machine"
	// TooLate: a person releases the node when the repair object exists and
	// the janitor, which was frozen, has not acted on it.
	TooLate Scenario = "released before the signal"
	// OutboxLost: the monitor's state is lost in mid-drain, which proves no
	// reboot; a person ends the session.
	OutboxLost Scenario = "outbox lost"
)

// Scenarios is the round of stories that the seeds go through: every second
// one is repaired to the end.
func Scenarios() []Scenario {
	return []Scenario{OneFault, ByHand, TwoFaults, Recovered, OneFault, Replaced, TwoFaults, TooLate, OneFault, OutboxLost}
}

// reboots is how often the node must have been rebooted in the end.
func (s Scenario) reboots() int {
	if s == OneFault || s == TwoFaults {
		return 1
	}
	return 0
}

// guarded says whether the drain has to be held up by a disruption budget.
func (s Scenario) guarded() bool {
	return s == ByHand || s == Recovered || s == Replaced || s == OutboxLost
}

// trip is one scenario on one node.
type trip struct {
	fleet    *fleet.Fleet
	scenario Scenario
	node     string
	lines    int
	// falseRecoveries counts recoveries reported without a reboot.
	falseRecoveries int
	limit           time.Duration
	// guard is the pod whose disruption budget holds the drain up; once the
	// session is over nobody may evict it.
	guard string
}

func (t *trip) run(ctx context.Context) error {
	if t.scenario.guarded() {
		t.guard = "guard-" + t.node
		if err := t.placeGuard(ctx); err != nil {
			return err
		}
	}
	if t.scenario == TooLate {
		t.fleet.Service("janitor").Freeze(true)
		defer t.fleet.Service("janitor").Freeze(false)
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
	if err := t.until(ctx, "the end: all faults closed, no mark left", t.over); err != nil || !t.guardMustStay() {
		return err
	}
	// With the budget gone nothing but a wrong eviction could take the pod.
	err := t.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(fleet.UserNamespace).Delete(ctx, t.guard, metav1.DeleteOptions{})
	pause(ctx, 1500*time.Millisecond)
	return err
}

// guardMustStay says whether the guard's pod outlives the trip.
func (t *trip) guardMustStay() bool { return t.guard != "" && t.scenario != Replaced }

func (t *trip) releaseBeforeTheSignal(ctx context.Context) error {
	err := t.until(ctx, "the repair object", func(ctx context.Context) (bool, error) {
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
	t.fleet.Service("janitor").Freeze(false)
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

// objects are the repair objects of the node.
func (t *trip) objects(ctx context.Context) ([]unstructured.Unstructured, error) {
	list, err := t.fleet.Cluster.Dynamic().Resource(demo.RebootNodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []unstructured.Unstructured
	for _, x := range list.Items {
		if name, _, _ := unstructured.NestedString(x.Object, "spec", "nodeName"); name == t.node {
			out = append(out, x)
		}
	}
	return out, nil
}

func (t *trip) repairs(ctx context.Context) ([]string, error) {
	list, err := t.objects(ctx)
	var out []string
	for _, x := range list {
		out = append(out, x.GetName())
	}
	return out, err
}

func (t *trip) fault(gpu, xid int) error {
	t.lines++
	_, err := t.fleet.WriteXID(t.node, gpu, xid)
	return err
}

func (t *trip) placeGuard(ctx context.Context) error {
	if _, err := t.fleet.Cluster.AddPod(ctx, localcluster.PodSpec{Namespace: fleet.UserNamespace, Name: t.guard, Node: t.node, GPUs: 1}); err != nil {
		return err
	}
	if _, err := t.fleet.Cluster.AddPDB(ctx, fleet.UserNamespace, t.guard, 1); err != nil {
		return err
	}
	_, err := t.fleet.Cluster.WaitForPods(ctx, fleet.UserNamespace, t.guard, 1)
	return err
}

func (t *trip) draining(ctx context.Context) (bool, error) {
	records, err := t.fleet.Records(ctx, t.node)
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
		return t.until(ctx, "the connector to take a recovery", func(ctx context.Context) (bool, error) {
			return true, t.recover(ctx)
		})
	case Replaced:
		return t.fleet.ReplaceMachine(ctx, t.node)
	case OutboxLost:
		return t.loseOutbox(ctx)
	case OneFault, TwoFaults, TooLate:
	}
	return fmt.Errorf("scenario %s is not cut short", t.scenario)
}

// loseOutbox takes the monitor's state away and leaves it time to report a
// recovery that it may not report.
func (t *trip) loseOutbox(ctx context.Context) error {
	if err := t.fleet.LoseState(t.node); err != nil {
		return err
	}
	pause(ctx, 3*time.Second)
	records, err := t.fleet.Records(ctx, t.node)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Event.IsHealthy {
			t.falseRecoveries++
		}
	}
	if t.falseRecoveries > 0 {
		return nil
	}
	return t.uncordon(ctx)
}

// uncordon is a person's hand.
func (t *trip) uncordon(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"unschedulable": false}})
	if err != nil {
		return err
	}
	_, err = t.fleet.Cluster.Client().CoreV1().Nodes().Patch(ctx, t.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// recover reports at the node's own door that all GPUs are well, as a GPU
// reset's acknowledgement would.
func (t *trip) recover(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(t.fleet.Dir, t.node+".sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Agent: fleet.Monitor, ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsHealthy: true, NodeName: t.node,
		Message: "No Health Failures", GeneratedTimestamp: timestamppb.Now(),
	}}})
	return err
}

// over says whether everything that has to happen to the node has happened.
func (t *trip) over(ctx context.Context) (bool, error) {
	faults, err := t.faults(ctx)
	if err != nil || len(faults) < t.lines {
		return false, err
	}
	for _, r := range faults {
		if !record.Finished(r) {
			return false, nil
		}
	}
	left, err := t.marks(ctx)
	if err != nil || len(left) > 0 {
		return false, err
	}
	if t.scenario.reboots() == 0 {
		return true, nil
	}
	n, err := t.fleet.Reboots(t.node)
	return n >= t.scenario.reboots(), err
}

func (t *trip) faults(ctx context.Context) ([]record.Record, error) {
	records, err := t.fleet.Records(ctx, t.node)
	var out []record.Record
	for _, r := range records {
		if r.IsFault() {
			out = append(out, r)
		}
	}
	return out, err
}

// until polls cond until it holds or the trip's limit has passed. Errors are
// expected while services die; the last one is shown.
func (t *trip) until(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	var last error
	for {
		ok, err := cond(ctx)
		if ok && err == nil {
			return nil
		}
		if err != nil {
			last = err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return errors.Join(fmt.Errorf("waited %s for %s", t.limit, what), last)
		}
	}
}

// pause waits unless ctx ends first, which it says.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
