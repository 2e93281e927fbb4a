package bridge

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// acting lets the event take the node out of service.
var acting = v1alpha1.HealthEventRemediationSpec{ProcessingStrategy: "PROCESS", RecommendedAction: "RESTART_BM"}

func TestRemediationLifecycle(t *testing.T) {
	b := newBench(t, "bridge-life")
	b.make(acting)
	steps := []struct {
		state                 nodemark.State
		reason                string
		processing, succeeded metav1.ConditionStatus
	}{
		{"", "Reported", "True", "Unknown"}, {nodemark.Quarantined, "Quarantined", "True", "Unknown"},
		{nodemark.Draining, "Draining", "True", "Unknown"}, {nodemark.Remediating, "Remediating", "True", "Unknown"},
		{nodemark.RemediationSucceeded, "RemediationSucceeded", "False", "True"},
		{nodemark.RemediationFailed, "RemediationSucceeded", "False", "True"}, // an outcome stays
	}
	for _, s := range steps {
		b.mark(s.state)
		if err := b.pass(); err != nil {
			t.Fatal(err)
		}
		b.expectConditions(s.reason, s.processing, s.succeeded)
	}
	if o := b.object(); o.Status.EventID != b.connector.events[0].GetId() || b.connector.calls != 1 {
		t.Errorf("event %s, %d calls", o.Status.EventID, b.connector.calls)
	}
	b.remove()
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectRemoved(protos.ProcessingStrategy_PROCESS)
}

// Without a word of the template nothing but a record comes of it.
func TestItOnlyObservesByDefault(t *testing.T) {
	b := newBench(t, "bridge-default")
	b.make(v1alpha1.HealthEventRemediationSpec{})
	if o := b.object(); o.Spec.ProcessingStrategy != "PERSIST_ONLY" || o.Spec.RecommendedAction != "RESTART_VM" {
		t.Errorf("spec %+v", o.Spec)
	}
	b.mark(nodemark.Draining) // of somebody else
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectConditions("ObservedOnly", "False", "Unknown")
	b.remove()
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectRemoved(protos.ProcessingStrategy_PERSIST_ONLY)
}

func TestADryRunReportsNothing(t *testing.T) {
	b := newBench(t, "bridge-dry")
	b.DryRun = true
	b.make(acting)
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if o := b.object(); len(o.Finalizers)+len(o.Status.Conditions)+len(b.connector.events) != 0 {
		t.Errorf("object %+v, events %v", o, b.connector.events)
	}
	b.remove()
	if b.object() != nil {
		t.Error("what was never reported stays")
	}
}

// A process that dies between any two writes: its successor publishes nothing new, and
// the fault that was published is ended.
func TestCrashBetweenTwoWrites(t *testing.T) {
	for _, point := range []string{"guarded", "reported", "mirrored", "recovered"} {
		for _, goes := range []bool{false, true} { // and the object is deleted while nobody runs
			t.Run(fmt.Sprintf("%s/%t", point, goes), func(t *testing.T) {
				b := newBench(t, fmt.Sprintf("bridge-%s-%t", point, goes))
				b.make(acting)
				b.here = func(at string) {
					if at == "node-health-check/"+point {
						panic(point)
					}
				}
				b.dies(point != "recovered")
				if point == "recovered" {
					b.remove()
					b.dies(true)
				} else if goes {
					b.remove()
				}
				b.here = func(string) {}
				if err := b.pass(); err != nil {
					t.Fatal(err)
				}
				if point != "recovered" && !goes {
					b.expectConditions("Reported", "True", "Unknown")
					b.remove()
				}
				if err := b.pass(); err != nil {
					t.Fatal(err)
				}
				if point == "guarded" && goes { // nothing was reported but its end
					if len(b.connector.events) != 1 || !b.connector.events[0].GetIsHealthy() || b.object() != nil {
						t.Errorf("events %v", b.connector.events)
					}
					return
				}
				b.expectRemoved(protos.ProcessingStrategy_PROCESS)
			})
		}
	}
}

// dies makes a pass, and fails the test unless the pass panics exactly when want is true.
func (b *bench) dies(want bool) {
	b.t.Helper()
	defer func() {
		if died := recover(); (died != nil) != want {
			b.t.Fatalf("died: %v", died)
		}
	}()
	if err := b.pass(); err != nil {
		b.t.Fatal(err)
	}
}

func TestAConnectorThatIsAway(t *testing.T) {
	b := newBench(t, "bridge-away")
	b.make(acting)
	b.connector.fails = status.Error(codes.Unavailable, "the store is away")
	for _, stored := range []bool{false, true} { // the second time only its answer is lost
		b.connector.loses = stored
		if err := b.pass(); status.Code(err) != codes.Unavailable {
			t.Errorf("error %v", err)
		}
		b.expectConditions("Reporting", "True", "Unknown")
		if ready, why := b.Ready(); ready || why == "" {
			t.Error("it is ready")
		}
	}
	b.connector.fails = nil
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectConditions("Reported", "True", "Unknown")
	b.remove()
	b.connector.fails, b.connector.loses = status.Error(codes.InvalidArgument, "no"), false
	if err := b.pass(); err == nil || b.object() == nil {
		t.Errorf("a recovery that was not taken is forgotten: %v", err)
	}
	b.connector.fails = nil
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectRemoved(protos.ProcessingStrategy_PROCESS)
	if ready, why := b.Ready(); !ready {
		t.Error(why)
	}
}

// An event that is refused for good is an outcome, and keeps nothing.
func TestARefusedEvent(t *testing.T) {
	b := newBench(t, "bridge-refused")
	b.make(acting)
	b.connector.fails = status.Error(codes.InvalidArgument, "check NodeHealthCheck is not of this agent")
	if err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.expectConditions("EventRefused", "False", "False")
	b.remove()
	if err := b.pass(); err != nil || b.object() != nil || len(b.connector.events) != 0 {
		t.Errorf("%v, events %v", err, b.connector.events)
	}
}

// What was reported can not be changed.
func TestTheSpecIsFixed(t *testing.T) {
	b := newBench(t, "bridge-fixed")
	b.make(v1alpha1.HealthEventRemediationSpec{})
	for _, spec := range []string{`{"processingStrategy":"PROCESS"}`, `{"recommendedAction":"REPLACE_VM"}`, `{"recommendedAction":"NONE"}`, `{"processingStrategy":"process"}`} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))
		if err := b.Live.Patch(t.Context(), b.object(), patch); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	b.remove()
}
