package triage_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

var (
	rebootKind    = schema.GroupVersionKind{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "RebootNode"}
	terminateKind = schema.GroupVersionKind{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "TerminateNode"}
)

// step makes the step of a kind; 0 is without a timeout.
func step(kind schema.GroupVersionKind, timeout time.Duration) triage.Step {
	version, name := kind.ToAPIVersionAndKind()
	return triage.Step{
		Template: corev1.ObjectReference{APIVersion: version, Kind: name + "Template", Name: strings.ToLower(name)},
		Kind:     kind, Timeout: timeout, Spec: map[string]any{},
	}
}

// world is a cluster without an API server: passes act on it.
type world struct {
	view         triage.View
	now          time.Time
	uids         int
	reportedKeys map[string]bool // keys of the last pass' notices
	notices      []triage.Notice // of the last pass
	did          []string        // of the last pass
	plan         triage.Plan
	fail         map[triage.Verb]bool // acts of these verbs fail
	stick        bool                 // removed remediations stay, by a finalizer
}

func newWorld(minHealthy int, threshold *int32, steps ...triage.Step) *world {
	if len(steps) == 0 {
		steps = []triage.Step{step(rebootKind, 0)}
	}
	return &world{
		now: testkit.Start,
		view: triage.View{
			Check: &v1alpha1.NodeHealthCheck{
				ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "check-uid"},
				Spec:       v1alpha1.NodeHealthCheckSpec{MinHealthy: new(intstr.FromInt32(int32(minHealthy))), StormRecoveryThreshold: threshold},
			},
			Steps: steps, Leases: map[string]triage.Lease{},
		},
	}
}

// node adds a healthy node.
func (w *world) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	w.view.Nodes = append(w.view.Nodes, n)
	w.ready(name, corev1.ConditionTrue, 0)
	return n
}

func (w *world) find(name string) *corev1.Node {
	for _, n := range w.view.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// ready sets the Ready condition of a node to a status that it has had for long.
func (w *world) ready(name string, status corev1.ConditionStatus, long time.Duration) {
	w.find(name).Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Time{Time: w.now.Add(-long)}},
	}
}

func (w *world) fall(name string)    { w.ready(name, corev1.ConditionUnknown, time.Hour) }
func (w *world) recover(name string) { w.ready(name, corev1.ConditionTrue, 0) }

// pass examines, acts and stores the status.
func (w *world) pass() {
	seen := w.view
	seen.Remediations = slices.Clone(w.view.Remediations) // what the plan points to
	seen.ControlPlane = nil
	for _, r := range seen.Remediations {
		if n := w.find(r.Node); n != nil && triage.IsControlPlane(n) {
			seen.ControlPlane = append(seen.ControlPlane, r.Node)
		}
	}
	w.plan = triage.Examine(seen, w.now)
	w.did, w.notices = nil, nil
	var outcomes []triage.Outcome
	for _, a := range w.plan.Acts {
		o := triage.Outcome{Act: a}
		if w.fail[a.Do] {
			o.Err = fmt.Errorf("refused")
			w.did = append(w.did, fmt.Sprintf("%s %s: refused", a.Do, a.Node))
		} else {
			o.Made = w.act(a)
		}
		outcomes = append(outcomes, o)
	}
	status, notices := w.plan.Close(seen, outcomes, w.now)
	keys := map[string]bool{}
	for _, n := range notices {
		if n.Key == "" || !w.reportedKeys[n.Key] {
			w.notices = append(w.notices, n)
		}
		keys[n.Key] = true
	}
	w.reportedKeys = keys
	w.view.Check.Status = status
}

// act does one act.
func (w *world) act(a triage.Act) *triage.Remediation {
	line := string(a.Do) + " " + a.Node
	defer func() { w.did = append(w.did, line) }()
	at := func() int {
		return slices.IndexFunc(w.view.Remediations, func(r triage.Remediation) bool { return r.UID == a.Remediation.UID })
	}
	if a.Remediation != nil {
		line += " " + a.Remediation.Kind.Kind
	}
	switch a.Do {
	case triage.Begin:
		w.uids++
		o := triage.NewRemediation(w.view.Check, *a.Step, a.Of)
		made := triage.Remediation{
			Kind: a.Step.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: fmt.Sprintf("uid-%d", w.uids),
			Node: a.Node, Template: a.Step.Template.Name, Created: w.now, Owned: true,
		}
		line += " " + made.Kind.Kind
		w.view.Remediations = append(w.view.Remediations, made)
		l := w.view.Leases[a.Node]
		if l.Holder != triage.Holder(w.view.Check.Name) {
			l = triage.Lease{Holder: triage.Holder(w.view.Check.Name), Acquired: w.now}
		}
		l.Renewed, l.Duration = w.now, a.LeaseFor
		w.view.Leases[a.Node] = l
		return &made
	case triage.Remove:
		if w.stick {
			w.view.Remediations[at()].Deleting = true
		} else {
			w.view.Remediations = slices.Delete(w.view.Remediations, at(), at()+1)
		}
	case triage.NotifyRemediator:
		w.view.Remediations[at()].Abandoned = true
	case triage.Delay:
		w.view.Remediations[at()].Delayed, w.view.Remediations[at()].HealthySince = true, w.now
	case triage.Undelay:
		w.view.Remediations[at()].Delayed, w.view.Remediations[at()].HealthySince = false, time.Time{}
	case triage.Confirm:
		delete(a.Of.Annotations, v1alpha1.ConfirmedHealthyAnnotation)
	case triage.Age:
		w.view.Remediations[at()].AgeReported = true
	case triage.Renew:
		l := w.view.Leases[a.Node]
		l.Renewed, l.Duration = w.now, a.LeaseFor
		w.view.Leases[a.Node] = l
	case triage.Release:
		delete(w.view.Leases, a.Node)
	}
	return nil
}

// finishDeletions ends the deletion of all remediations.
func (w *world) finishDeletions() {
	w.view.Remediations = slices.DeleteFunc(w.view.Remediations, func(r triage.Remediation) bool { return r.Deleting })
}

// of are the remediations of a node.
func (w *world) of(node string) []*triage.Remediation {
	var out []*triage.Remediation
	for i := range w.view.Remediations {
		if w.view.Remediations[i].Node == node {
			out = append(out, &w.view.Remediations[i])
		}
	}
	return out
}

// amount reads a number or a percentage.
func amount(text string) *intstr.IntOrString { return new(intstr.Parse(text)) }

type schemaKind = schema.GroupVersionKind
