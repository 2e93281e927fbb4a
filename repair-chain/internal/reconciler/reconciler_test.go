package reconciler

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const waitTimeout = 2 * time.Minute

// office is a real API server with the kinds, and the controllers at work.
type office struct {
	*testing.T
	live    client.Client
	cluster *localcluster.Cluster
}

func open(t *testing.T, keep time.Duration) *office { return openWith(t, Deps{Keep: keep}) }

// openWith is with what else the controllers work with.
func openWith(t *testing.T, deps Deps) *office {
	t.Helper()
	o, deps := furnished(t, deps)
	o.start(New(o.cluster.RESTConfig(), deps))
	return o
}

// furnished is an office in which no controller is at work yet.
func furnished(t *testing.T, deps Deps) (*office, Deps) {
	t.Helper()
	cluster := localcluster.ForTest(t, localcluster.Options{})
	crds := "../../../distros/helm/nvsentinel/crds/nvsentinel.dgxc.nvidia.com_"
	for _, file := range []string{crds + "repairtemplates.yaml", crds + "repairchains.yaml", crds + "repairruns.yaml", "../../testdata/definitions.yaml"} {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		_ = text.Close()
	}
	live, err := Live(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	deps.Live, deps.Objects, deps.Clock = live, cluster.Dynamic(), clock.RealClock{}
	deps.Log, deps.Metrics = slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry())
	return &office{t, live, cluster}, deps
}

// start runs the controllers until the test ends.
func (o *office) start(w *Watch) {
	ctx, stop := context.WithCancel(o.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	o.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			o.Error(err)
		}
	})
}

func (o *office) make(objects ...client.Object) {
	o.Helper()
	for _, x := range objects {
		if run, is := x.(*v1alpha1.RepairRun); is && v1alpha1.NodeOf(run) != "" {
			o.node(v1alpha1.NodeOf(run))
		}
		if err := o.live.Create(o.Context(), x); err != nil {
			o.Fatal(err)
		}
		o.Cleanup(func() { _ = o.live.Delete(context.WithoutCancel(o.Context()), x) })
	}
}

// node makes a Node, if it is not there.
func (o *office) node(name string) {
	o.Helper()
	if err := o.live.Create(o.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
		o.Fatal(err)
	}
}

// waitForCondition waits until a condition of an object has a status and its message a text.
func (o *office) waitForCondition(x client.Object, conditions func() []metav1.Condition, kind string, status metav1.ConditionStatus, text string) {
	o.Helper()
	var c *metav1.Condition
	testkit.Until(o, waitTimeout, func() bool {
		if err := o.live.Get(o.Context(), client.ObjectKeyFromObject(x), x); err != nil {
			return false
		}
		c = meta.FindStatusCondition(conditions(), kind)
		return c != nil && c.Status == status && strings.Contains(c.Message, text)
	})
}

func template(name, object string) *v1alpha1.RepairTemplate {
	return &v1alpha1.RepairTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RepairTemplateSpec{Template: runtime.RawExtension{Raw: []byte(object)}}}
}

func chainOf(name string, steps ...v1alpha1.Step) *v1alpha1.RepairChain {
	return &v1alpha1.RepairChain{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RepairChainSpec{Steps: steps}}
}

func runOfChain(name, chain string) *v1alpha1.RepairRun {
	return &v1alpha1.RepairRun{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RepairRunSpec{NodeName: "node-1", Chain: chain}}
}

// TestAccepted: templates and chains show what is wrong with them; a chain is accepted once
// its template is fixed; a run of an invalid chain is rejected with the reason.
func TestAccepted(t *testing.T) {
	o := open(t, 0)
	good := template("accepted-good", `{"apiVersion":"v1","kind":"ConfigMap","data":{"node":"{{ .NodeName }}"}}`)
	bad := template("accepted-bad", `{"apiVersion":"v1","kind":"ConfigMap","data":{"node":"{{ .NodeName"}}`)
	steps := chainOf("accepted-chain", v1alpha1.Step{Name: "one", Template: good.Name}, v1alpha1.Step{Name: "two", Template: bad.Name})
	expression := chainOf("accepted-expression", v1alpha1.Step{Name: "one", Template: good.Name, When: "node +"})
	field := template("accepted-field", `{"apiVersion":"v1","kind":"ConfigMap","data":{"node":"{{ .NodeNam }}"}}`)
	state := chainOf("accepted-state", v1alpha1.Step{Name: "a", Template: good.Name, OnFailure: v1alpha1.Continue}, v1alpha1.Step{Name: "b", Template: good.Name, When: "steps.a == 'failed'"})
	o.make(good, bad, field, steps, expression, state)
	o.waitForCondition(field, func() []metav1.Condition { return field.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "spec.template: .data.node: there is no field .NodeNam, its fields are .Name, .NodeName")
	o.waitForCondition(state, func() []metav1.Condition { return state.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse, `spec.steps[1].when: step b: "failed" is not a final state`)
	o.waitForCondition(good, func() []metav1.Condition { return good.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	o.waitForCondition(bad, func() []metav1.Condition { return bad.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse, ".data.node: ")
	o.waitForCondition(steps, func() []metav1.Condition { return steps.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "spec.steps[1].template: RepairTemplate accepted-bad: ")
	o.waitForCondition(expression, func() []metav1.Condition { return expression.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "spec.steps[0].when: ")
	for name, x := range map[string]struct{ chain, message string }{
		"accepted-run-1": {"accepted-nothing", "RepairChain accepted-nothing does not exist"},
		"accepted-run-2": {steps.Name, "RepairTemplate accepted-bad"},
		"accepted-run-3": {expression.Name, "spec.steps[0].when"},
		"accepted-run-4": {state.Name, `RepairChain accepted-state: spec.steps[1].when: step b: "failed" is not a final state`},
	} {
		run := runOfChain(name, x.chain)
		o.make(run)
		o.waitForCondition(run, func() []metav1.Condition { return run.Status.Conditions }, v1alpha1.ConditionSucceeded, metav1.ConditionFalse, x.message)
	}
	testkit.Until(t, waitTimeout, func() bool {
		if err := o.live.Get(t.Context(), client.ObjectKeyFromObject(bad), bad); err != nil {
			return false
		}
		bad.Spec.Template.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"node":"{{ .NodeName }}"}}`)
		return o.live.Update(t.Context(), bad) == nil
	})
	o.waitForCondition(steps, func() []metav1.Condition { return steps.Status.Conditions }, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
}

// TestARunThatHasEndedIsRemoved after its time.
func TestARunThatHasEndedIsRemoved(t *testing.T) {
	o := open(t, time.Nanosecond)
	run := runOfChain("removed-run", "removed-nothing")
	o.make(run)
	testkit.Until(t, waitTimeout, func() bool {
		return apierrors.IsNotFound(o.live.Get(t.Context(), client.ObjectKeyFromObject(run), run))
	})
}

// TestATemplateOfAnotherScope: a namespaced kind needs a namespace, and the step reports that.
func TestATemplateOfAnotherScope(t *testing.T) {
	o := open(t, 0)
	scope := template("scope", `{"apiVersion":"v1","kind":"ConfigMap"}`)
	missing := template("scope-missing", `{"apiVersion":"example.com/v1","kind":"Nothing"}`)
	one, two := chainOf("scope", v1alpha1.Step{Name: "one", Template: scope.Name}), chainOf("scope-missing", v1alpha1.Step{Name: "one", Template: missing.Name})
	o.make(scope, missing, one, two)
	for chain, message := range map[string]string{one.Name: "objects of /v1, Kind=ConfigMap are namespaced: true", two.Name: "discovering the resource of example.com/v1, Kind=Nothing"} {
		run := runOfChain("run-of-"+chain, chain)
		o.make(run)
		o.waitForCondition(run, func() []metav1.Condition { return run.Status.Conditions }, v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, message)
	}
}

// TestEvents: Events report steps and outputs.
func TestEvents(t *testing.T) {
	o := open(t, 0)
	note := template("events", `{"apiVersion":"v1","kind":"ConfigMap","data":{"node":"{{ .NodeName }}"}}`)
	note.Spec.Namespace, note.Spec.Outputs = "default", []v1alpha1.Output{{Name: "node", Path: ".data.node"}}
	run := runOfChain("events-run", "events")
	o.make(note, chainOf("events", v1alpha1.Step{Name: "one", Template: note.Name}))
	o.make(run)
	o.waitForCondition(run, func() []metav1.Condition { return run.Status.Conditions }, v1alpha1.ConditionSucceeded, metav1.ConditionTrue, "")
	testkit.Until(t, waitTimeout, func() bool {
		list := &eventsv1.EventList{}
		if err := o.live.List(t.Context(), list); err != nil {
			return false
		}
		reported := map[string]string{}
		for _, e := range list.Items {
			if e.Regarding.Name == run.Name {
				reported[e.Reason] = e.Note
			}
		}
		return strings.HasPrefix(reported["StepDone"], "Step one: NoRule") && strings.HasPrefix(reported["OutputChanged"], "Output one.node has the digest sha256:")
	})
}
