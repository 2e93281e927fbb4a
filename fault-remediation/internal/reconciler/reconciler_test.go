package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
)

func TestFullLifecycle(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.shows("r1", "null () [1 Unknown uid=true sent=true] label=remediating")

	o := b.onlyObject()
	a := b.record("r1").Status.Remediation.Attempts[0]
	if o.GetName() != a.Name || string(o.GetUID()) != a.UID || a.PriorBootID != "boot-1" {
		t.Errorf("object %s %s, attempt %+v", o.GetName(), o.GetUID(), a)
	}
	for key, want := range map[string]string{
		"dgxc.nvidia.com/nvsentinel-session": b.session, "dgxc.nvidia.com/nvsentinel-record": "r1",
		"dgxc.nvidia.com/nvsentinel-group": "restart", "dgxc.nvidia.com/nvsentinel-ordinal": "1",
	} {
		if got := o.GetAnnotations()[key]; got != want {
			t.Errorf("annotation %s = %q, want %q", key, got, want)
		}
	}
	if len(o.GetOwnerReferences()) > 0 {
		t.Errorf("owners %v, want none", o.GetOwnerReferences())
	}
	var view struct {
		EquivalenceGroups map[string]struct{ MaintenanceCR, ActionName string }
	}
	if err := json.Unmarshal([]byte(b.liveNode().Annotations[nodemark.LatestFaultRemediationState]), &view); err != nil || view.EquivalenceGroups["restart"].MaintenanceCR != o.GetName() {
		t.Errorf("annotation %+v, %v", view, err)
	}

	b.finish(o, "NodeReady", "True", "Succeeded", "boot-2")
	b.parks(decision.WaitRecovery)
	b.shows("r1", "true Succeeded(Succeeded) [1 Healthy uid=true sent=true] label=remediation-succeeded")
	if got := b.record("r1").Status.Remediation.Attempts[0].ReplacedBootID; got != "boot-1" {
		t.Errorf("replaced boot %q, want boot-1", got)
	}

	b.clock.Step(31 * time.Minute)
	b.settles()
	b.shows("r1", "true ManualInterventionRequired(NoRecovery) [1 Healthy uid=true sent=true] label=remediation-failed")
}

// failing is a store whose next updates fail: after they were written, or
// before.
type failing struct {
	store.Store
	updates int
	fail    int
	written bool
}

func (f *failing) Update(ctx context.Context, w record.Writer, c []store.Change) ([]record.Record, error) {
	f.updates++
	if f.updates != f.fail {
		return f.Store.Update(ctx, w, c)
	}
	if f.written {
		if _, err := f.Store.Update(ctx, w, c); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the store is gone")
}

// TestInterrupted: an interruption around each status update, seen or not seen by the
// store, leads to the same one object and the same end.
func TestInterrupted(t *testing.T) {
	for name, f := range map[string]failing{
		"name-stamp-lost":    {fail: 1},
		"name-stamp-written": {fail: 1, written: true},
		"uid-stamp-lost":     {fail: 2},
		"uid-stamp-written":  {fail: 2, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fault("r1", record.ActionRestartVM)
			f.Store = b.store
			b.Records = own(&f)
			if err := b.Handle(t.Context(), b.node); err == nil || !strings.Contains(err.Error(), "the store is gone") {
				t.Fatalf("Handle = %v, want the interruption", err)
			}
			b.parks(decision.WaitObject)
			b.onlyObject()
			b.shows("r1", "null () [1 Unknown uid=true sent=true] label=remediating")
		})
	}
}

// TestReadErrorIsNotAbsence: an object that can not be read is neither lost nor
// created again, and the same holds when its kind vanishes from the API server.
func TestReadErrorIsNotAbsence(t *testing.T) {
	const unserved = "404 page not found\n"
	tests := map[string]struct {
		code int
		body string
		why  decision.Reason
	}{
		"unavailable":     {http.StatusServiceUnavailable, "", decision.ReadError},
		"forbidden":       {http.StatusForbidden, "", decision.ReadError},
		"internal":        {http.StatusInternalServerError, "", decision.ReadError},
		"kind-not-served": {http.StatusNotFound, unserved, decision.KindMissing},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fault("r1", record.ActionRestartVM)
			b.parks(decision.WaitObject)
			whole := b.Cluster
			b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/rebootnodes/") {
					return nil, nil
				}
				return &http.Response{StatusCode: tt.code, Body: io.NopCloser(strings.NewReader(tt.body)), Header: http.Header{}, Request: r}, nil
			})
			b.parks(tt.why)
			b.onlyObject()
			b.shows("r1", "null () [1 Unknown uid=true sent=true] label=remediating")
			b.Cluster = whole
			b.parks(decision.WaitObject)
			b.onlyObject()
		})
	}
}

func TestDeletedObjectIsLost(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	if err := b.cluster.Dynamic().Resource(rebootNodes).Delete(t.Context(), b.onlyObject().GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.settles()
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects after the loss, want none", n)
	}
	b.shows("r1", "false ManualInterventionRequired(Lost) [1 Lost uid=true sent=true] label=remediation-failed")
}

func TestForeignObjectOfTheSameName(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.Records = own(&failing{Store: b.store, fail: 1, written: true})
	if err := b.Handle(t.Context(), b.node); err == nil {
		t.Fatal("no interruption after the name was stamped")
	}
	name := b.record("r1").Status.Remediation.Attempts[0].Name
	foreign := "apiVersion: janitor.dgxc.nvidia.com/v1alpha1\nkind: RebootNode\nmetadata: {name: " + name + "}\nspec: {nodeName: somewhere-else}\n"
	if err := b.cluster.Apply(t.Context(), strings.NewReader(foreign)); err != nil {
		t.Fatal(err)
	}
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(NameTaken) [1 Cancelled uid=false sent=false] label=remediation-failed")
}

func TestPodsThatCameBackHoldTheRepair(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	pods := b.cluster.Client().CoreV1().Pods(b.cluster.Namespace(t))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "train-0"},
		Spec:       corev1.PodSpec{NodeName: b.node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitPods)
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects while a pod is there, want none", n)
	}
	now := int64(0)
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitObject)
	b.onlyObject()
}

// TestAControllerThatIsLeftAloneHoldsNoRepair: node-drainer has recorded that a controller
// puts its pods back on the node. Another controller's pod holds the repair all the same.
func TestAControllerThatIsLeftAloneHoldsNoRepair(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	pods := b.cluster.Client().CoreV1().Pods(b.cluster.Namespace(t))
	for _, name := range []string{"agent", "other"} {
		if _, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "example.com/v1", Kind: "NodeAgent", Name: name, UID: types.UID("uid-" + name), Controller: new(true)},
			}},
			Spec: corev1.PodSpec{NodeName: b.node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.update(record.NodeDrainer, "r1", func(s *record.Status) { s.UserPodsEvictionStatus.LeftAlone = "uid-agent" })
	b.parks(decision.WaitPods)
	if err := pods.Delete(t.Context(), "other", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitObject)
	b.onlyObject()
}

func TestSchedulableNodeIsNotRepaired(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	taint := `{"key":"gpu","value":"bad","effect":"NoSchedule"}`
	b.patchNode(`{"spec":{"unschedulable":null}}`)
	b.parks(decision.WaitMarks)
	// A foreign taint is not the session's.
	b.patchNode(`{"spec":{"taints":[` + taint + `]}}`)
	b.parks(decision.WaitMarks)
	applied, err := json.Marshal("[" + taint + "]")
	if err != nil {
		t.Fatal(err)
	}
	b.patchNode(`{"metadata":{"annotations":{"quarantineHealthEventAppliedTaints":` + string(applied) + `}}}`)
	b.parks(decision.WaitObject)
}

// TestSessionOver: the recovery comes while the object waits; the actor sends
// nothing, the record is cancelled, and the released Node is not written.
func TestSessionOver(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.clear("r1")
	b.patchNode(`{"spec":{"unschedulable":null},"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":null},"annotations":{"dgxc.nvidia.com/nvsentinel-session":null}}}`)
	b.parks(decision.WaitObject)
	b.finish(b.onlyObject(), "SignalSent", "False", "SessionOver", "")
	before := b.liveNode().ResourceVersion
	b.settles()
	b.shows("r1", "null Cancelled(Cancelled) [1 Cancelled uid=true sent=false] label=")
	if after := b.liveNode().ResourceVersion; after != before {
		t.Errorf("the released Node was written: resourceVersion %s, before %s", after, before)
	}
}

func TestHumanAction(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionContactSupport)
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(ManualActionRequired) label=remediation-failed")
	if got := b.record("r1").Status.Remediation.Message; !strings.HasPrefix(got, "CONTACT_SUPPORT requires manual intervention: ") {
		t.Errorf("message %q", got)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	b := newBench(t)
	b.DryRun = true
	b.fault("r1", record.ActionRestartVM)
	b.fault("r2", record.ActionContactSupport)
	before, revision := b.liveNode().ResourceVersion, b.record("r2").Revision
	b.settles()
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
	if after := b.liveNode().ResourceVersion; after != before {
		t.Error("the Node was written")
	}
	if b.record("r1").Status.Remediation != nil || b.record("r2").Revision != revision {
		t.Error("a record was written")
	}
	// Switched off, the same work goes on.
	b.DryRun = false
	b.parks(decision.WaitObject)
	b.onlyObject()
}

// TestTwoReconcilersOneObject: two of them at once, as after a lost lease, create one.
func TestTwoReconcilersOneObject(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	other := reconciler.Reconciler{
		Records: own(b.store), Cluster: b.Cluster, Repairs: b.Repairs, Policy: b.Policy, Eviction: b.Eviction,
		Clock: b.Clock, Log: b.Log, Metrics: b.Metrics,
	}
	var both sync.WaitGroup
	for _, d := range []*reconciler.Reconciler{b.Reconciler, &other} {
		both.Go(func() {
			for range 10 {
				err := d.Handle(t.Context(), b.node)
				if _, _, ok := retry.AsPark(err); ok {
					return
				}
				if _, _, ok := retry.AsWait(err); !ok {
					t.Errorf("Handle = %v", err)
					return
				}
			}
			t.Error("not parked after ten tries")
		})
	}
	both.Wait()
	b.onlyObject()
	b.shows("r1", "null () [1 Unknown uid=true sent=true] label=remediating")
}

func TestRefusedByTheAPIServer(t *testing.T) {
	b := newBench(t)
	actions := action.Default()
	bad := actions["RESTART_VM"]
	bad.TemplateFileName, bad.Template = "", "apiVersion: {{.ApiGroup}}/{{.Version}}\nkind: {{.Kind}}\nspec: {nodeName: {{quote .NodeName}}, force: often}\n"
	actions["RESTART_VM"] = bad
	b.Repairs = compile(t, actions)
	b.fault("r1", record.ActionRestartVM)
	b.settles()
	b.shows("r1", "false ManualInterventionRequired(CreateRefused) [1 Cancelled uid=false sent=false] label=remediation-failed")
}

func TestDeletedNodeParks(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	if err := b.cluster.DeleteNode(t.Context(), b.node); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.NodeGone)
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
}

func TestBacklog(t *testing.T) {
	b := newBench(t)
	node := b.node
	b.fault("open", record.ActionRestartVM)
	var enqueued []string
	enqueue := func() []string {
		enqueued = nil
		if err := b.Service("fault-remediation", 1).Backlog(t.Context(), func(n string) { enqueued = append(enqueued, n) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(enqueued)
		return slices.Compact(enqueued)
	}
	if got := enqueue(); !slices.Equal(got, []string{node}) {
		t.Errorf("backlog %q, want the node of the drained fault", got)
	}
	b.parks(decision.WaitObject)
	b.clear("open")
	if got := enqueue(); !slices.Equal(got, []string{node}) {
		t.Errorf("backlog %q, want the node of the unfinished repair", got)
	}
	b.finish(b.onlyObject(), "NodeReady", "True", "Succeeded", "boot-2")
	b.settles()
	if got := enqueue(); len(got) != 0 {
		t.Errorf("backlog %q, want none", got)
	}
}
