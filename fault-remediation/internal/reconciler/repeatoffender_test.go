package reconciler_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// repeatOffenders is a bench that marks repeat offenders, whose node needs its third
// repair: the faults r1 and r2 were repaired, r3 is open.
func repeatOffenders(t *testing.T, keep bool) *bench {
	b := newBench(t)
	b.Policy.RepeatOffender = decision.RepeatOffenderPolicy{Repairs: decision.DefaultRepeatOffenderRepairs, Window: decision.DefaultRepeatOffenderWindow, Keep: keep}
	actions := action.Default()
	restart := actions["RESTART_VM"]
	restart.Attempts = &action.Attempts{Max: 9, Window: time.Hour}
	actions["RESTART_VM"] = restart
	b.Repairs = compile(t, actions)
	for _, id := range []string{"r1", "r2"} {
		b.enter("session-of-" + id)
		b.fault(id, record.ActionRestartVM)
		b.parks(decision.WaitObject)
		b.repaired(id)
	}
	if mark := b.repeatOffenderMark(); mark != "" {
		t.Fatalf("a lemon after two repairs: %s", mark)
	}
	b.enter("session-of-r3")
	b.fault("r3", record.ActionRestartVM)
	return b
}

// enter puts the node into a session.
func (b *bench) enter(session string) {
	b.t.Helper()
	b.session = session
	b.patchNode(`{"spec":{"unschedulable":true},"metadata":{"annotations":{"dgxc.nvidia.com/nvsentinel-session":"` + session + `"}}}`)
}

// repaired ends the repair of a fault, the fault, and its session.
func (b *bench) repaired(id string) {
	b.t.Helper()
	attempts := b.record(id).Status.Remediation.Attempts
	for _, o := range b.objects() {
		if o.GetName() == attempts[len(attempts)-1].Name {
			b.finish(o, "NodeReady", "True", "Succeeded", "")
		}
	}
	b.parks(decision.WaitRecovery)
	b.clear(id)
	b.patchNode(`{"spec":{"unschedulable":null},"metadata":{"annotations":{"dgxc.nvidia.com/nvsentinel-session":null}}}`)
	b.settles()
}

// repeatOffenderMark is the node's repeat offender mark: label, repairs, session that is kept.
func (b *bench) repeatOffenderMark() string {
	b.t.Helper()
	n := b.liveNode()
	note, ok := nodemark.ParseRepeatOffender(n.Annotations[nodemark.RepeatOffenderAnnotation])
	if !ok && n.Labels[nodemark.RepeatOffenderLabel] == "" {
		return ""
	}
	text := "label=" + n.Labels[nodemark.RepeatOffenderLabel]
	// The test's clock and the API server's do not show what came first.
	slices.SortFunc(note.Repairs, func(a, b nodemark.CountedRepair) int { return strings.Compare(a.Session, b.Session) })
	for _, r := range note.Repairs {
		text += " " + r.Session
	}
	if note.RequiresRelease != "" {
		text += " kept=" + note.RequiresRelease
	}
	return text
}

const threeRepairs = "label=true session-of-r1 session-of-r2 session-of-r3"

func (b *bench) wantRepeatOffender(want string) {
	b.t.Helper()
	if got := b.repeatOffenderMark(); got != want {
		b.t.Errorf("lemon mark %q, want %q", got, want)
	}
}

// TestThirdRepairMarksRepeatOffender: when it begins, with one Event, and again on a Node
// that is created again for the same machine; another machine is none.
func TestThirdRepairMarksRepeatOffender(t *testing.T) {
	b := repeatOffenders(t, false)
	b.parks(decision.WaitObject)
	b.parks(decision.WaitObject)
	b.wantRepeatOffender(threeRepairs)
	reported := strings.Join(b.events(), "\n")
	if strings.Count(reported, reconciler.EventRepeatOffender+" x1: The machine required 3 remediations within 720h0m0s: quarantine session session-of-r") != 1 {
		t.Errorf("events %s", reported)
	}
	b.rejoin("test://"+b.node, "boot-1")
	b.parks(decision.WaitObject)
	b.wantRepeatOffender(threeRepairs)
	b.repaired("r3")
	b.wantRepeatOffender(threeRepairs)
	b.patchNode(`{"metadata":{"annotations":{"dgxc.nvidia.com/nvsentinel-session":null}}}`)
	b.rejoin("test://another", "boot-9")
	b.settles()
	b.wantRepeatOffender("")
}

// TestAMarkUnderFormerNamesIsWrittenAgain under the present ones, with no second Event.
func TestAMarkUnderFormerNamesIsWrittenAgain(t *testing.T) {
	b := repeatOffenders(t, false)
	b.parks(decision.WaitObject)
	b.patchNode(fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:"true"},"annotations":{%q:null,%q:%q}}}`,
		nodemark.RepeatOffenderLabel, nodemark.FormerRepeatOffenderLabel, nodemark.RepeatOffenderAnnotation, nodemark.FormerRepeatOffenderAnnotation, b.liveNode().Annotations[nodemark.RepeatOffenderAnnotation]))
	b.parks(decision.WaitObject)
	b.wantRepeatOffender(threeRepairs)
	n := b.liveNode()
	if n.Labels[nodemark.FormerRepeatOffenderLabel] != "" || n.Annotations[nodemark.FormerRepeatOffenderAnnotation] != "" {
		t.Errorf("the former mark is left: %v %v", n.Labels, n.Annotations)
	}
	if reported := strings.Join(b.events(), "\n"); strings.Count(reported, reconciler.EventRepeatOffender+" x1") != 1 || strings.Contains(reported, "x2") {
		t.Errorf("events %s", reported)
	}
}

// TestRepeatOffenderOnAnotherMachine: the same Node object is another machine's now.
func TestRepeatOffenderOnAnotherMachine(t *testing.T) {
	b := repeatOffenders(t, false)
	b.parks(decision.WaitObject)
	b.repaired("r3")
	note, _ := nodemark.ParseRepeatOffender(b.liveNode().Annotations[nodemark.RepeatOffenderAnnotation])
	note.Machine.ProviderID = "test://the-one-before"
	b.patchNode(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nodemark.RepeatOffenderAnnotation, note.Text()))
	b.patchNode(`{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-repeat-offender":"false"}}}`)
	b.settles()
	// Its own repairs are three as well.
	b.wantRepeatOffender(threeRepairs)
}

// TestAPersonTakesTheMarkOff: wherever the service is interrupted, the repairs so far
// count no more, also for a Node that is created again.
func TestAPersonTakesTheMarkOff(t *testing.T) {
	gone := errors.New("the API server is gone")
	for name, f := range map[string]*failing{
		"not-interrupted": {}, "stamp-lost": {fail: 1}, "stamp-written": {fail: 1, written: true}, "node-not-written": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := repeatOffenders(t, false)
			b.parks(decision.WaitObject)
			b.repaired("r3")
			b.patchNode(`{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-repeat-offender":null}}}`)
			whole := b.Cluster
			if f != nil {
				f.Store = b.store
				b.Records = own(f)
			} else {
				b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPatch {
						return nil, gone
					}
					return nil, nil
				})
			}
			err := b.Handle(t.Context(), b.node)
			if interrupted := name != "not-interrupted"; (err != nil) != interrupted {
				t.Fatalf("Handle = %v", err)
			}
			b.Cluster = whole
			b.settles()
			b.wantRepeatOffender("")
			for _, id := range []string{"r1", "r2", "r3"} {
				if b.record(id).Status.Remediation.Forgiven == nil {
					t.Errorf("%s still counts", id)
				}
			}
			if err := b.cluster.DeleteNode(t.Context(), b.node); err != nil {
				t.Fatal(err)
			}
			b.addNode("boot-1")
			b.settles()
			b.wantRepeatOffender("")
		})
	}
}

// TestRepeatOffenderRequiresRelease: its third repair is not begun, and a person is asked; taking the
// mark off reboots nothing.
func TestRepeatOffenderRequiresRelease(t *testing.T) {
	b := repeatOffenders(t, true)
	b.settles()
	b.settles()
	b.shows("r3", "false ManualInterventionRequired(RepeatOffender) label=remediation-failed")
	b.wantRepeatOffender(threeRepairs + " kept=session-of-r3")
	if n := len(b.objects()); n != 2 {
		t.Errorf("%d objects, want those of the two repairs before", n)
	}
	reported := strings.Join(b.events(), "\n")
	if strings.Count(reported, reconciler.EventRepeatOffender+" x1") != 1 || strings.Count(reported, reconciler.EventNeedsHuman+" x1: RepeatOffender: this machine requires remediation 3") != 1 {
		t.Errorf("events %s", reported)
	}
	b.patchNode(`{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-repeat-offender":null}}}`)
	b.settles()
	b.shows("r3", "false ManualInterventionRequired(Forgiven) label=remediation-failed")
	b.wantRepeatOffender("")
	if n := len(b.objects()); n != 2 {
		t.Errorf("%d objects after the mark was taken off, want 2", n)
	}
}

func TestRepeatOffendersAreCounted(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	registry := prometheus.NewRegistry()
	filled := false
	reconciler.RegisterRepeatOffenders(registry, corelisters.NewNodeLister(nodes), func() (bool, string) { return filled, "" })
	for name, label := range map[string]string{"a": "true", "b": "false", "c": "true", "d": ""} {
		n := &corev1.Node{}
		n.Name, n.Labels = name, map[string]string{nodemark.RepeatOffenderLabel: label}
		if err := nodes.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"NaN", "2"} {
		text := `# HELP nvsentinel_fault_remediation_repeat_offender_nodes Nodes with the label of repeat offenders, because their machine required too many remediations.
# TYPE nvsentinel_fault_remediation_repeat_offender_nodes gauge
nvsentinel_fault_remediation_repeat_offender_nodes ` + want + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
		filled = true
	}
}
