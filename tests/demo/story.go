package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// RebootNodes is the resource of the janitor's reboot objects.
var RebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}

// sense is the node of a fault, the monitor that reports it and its check; chain means that a
// chain repairs it.
type sense struct {
	node, monitor, check string
	chain                bool
}

// facts are one look at a node: the API server's side and the store's.
type facts struct {
	node     *corev1.Node
	pods     int
	fault    record.Record
	recovery record.Record
	repairs  []unstructured.Unstructured
	// chain are the states of its steps, where one repairs the node.
	chain map[string]v1alpha1.StepState
}

// step is one thing that must have happened, in any order with its neighbours.
type step struct {
	name    string
	service string
	reached func(first *corev1.Node, f facts) bool
	at      time.Time
}

// story follows one node from the line to its release.
type story struct {
	fleet *fleet.Fleet
	name  string
	sense sense
	first *corev1.Node
	steps []*step
	began time.Time
	last  facts
	// during is the Node as first seen in quarantine.
	during *corev1.Node
	labels *labels
}

func newStory(f *fleet.Fleet, from sense, first *corev1.Node) *story {
	s := &story{fleet: f, name: first.Name, sense: from, first: first}
	add := s.add
	add("platform-connectors", "event stored", func(_ *corev1.Node, f facts) bool { return f.fault.ID != "" })
	add("platform-connectors", "condition "+from.check+"=True", func(_ *corev1.Node, f facts) bool {
		return condition(f.node, from.check) == corev1.ConditionTrue || f.recovery.ID != ""
	})
	add("fault-quarantine", "evaluated: Matched", func(_ *corev1.Node, f facts) bool { return f.fault.Reason() == record.Matched })
	add("fault-quarantine", "node cordoned", func(_ *corev1.Node, f facts) bool {
		return f.node.Spec.Unschedulable && f.node.Annotations[nodemark.SessionAnnotation] == f.fault.ID
	})
	add("node-drainer", "drained, no user pod left", func(_ *corev1.Node, f facts) bool {
		return f.fault.Status.UserPodsEvictionStatus.Status == record.EvictionSucceeded && f.pods == 0
	})
	add("fault-remediation", "maintenance object created", func(_ *corev1.Node, f facts) bool { return len(f.repairs) == 1 })
	add("janitor", "node claimed, reboot requested", func(_ *corev1.Node, f facts) bool {
		return len(f.repairs) == 1 && conditionOf(f.repairs[0], "SignalSent") == "True"
	})
	add("csp-plugin-kwok", "boot id changed", func(first *corev1.Node, f facts) bool {
		return f.node.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID
	})
	add("janitor", "node Ready under the new boot", func(_ *corev1.Node, f facts) bool {
		return len(f.repairs) == 1 && conditionOf(f.repairs[0], "NodeReady") == "True"
	})
	add("fault-remediation", "repair evaluated as Healthy", func(_ *corev1.Node, f facts) bool { return record.Remediated(f.fault.Status) == "true" })
	add(from.monitor, "recovery reported and stored", func(_ *corev1.Node, f facts) bool { return f.recovery.ID != "" })
	add("fault-quarantine", "fault cleared", func(_ *corev1.Node, f facts) bool { return f.fault.Status.AllCleared() })
	add("platform-connectors", "condition "+from.check+"=False", func(_ *corev1.Node, f facts) bool { return condition(f.node, from.check) == corev1.ConditionFalse })
	add("fault-quarantine", "node released", func(_ *corev1.Node, f facts) bool {
		return f.fault.Status.AllCleared() && !f.node.Spec.Unschedulable && f.node.Annotations[nodemark.SessionAnnotation] == ""
	})
	// Kubernetes takes its own taints away a moment after the cordon is gone.
	add("kube-controller-manager", "node schedulable, no taint left", func(_ *corev1.Node, f facts) bool {
		return f.fault.Status.AllCleared() && !f.node.Spec.Unschedulable && len(f.node.Spec.Taints) == 0
	})
	add("all services", "all state labels observed", func(*corev1.Node, facts) bool { return s.labels.complete() })
	if from.chain {
		s.chainSteps()
	}
	return s
}

func (s *story) add(service, name string, seen func(*corev1.Node, facts) bool) {
	s.steps = append(s.steps, &step{name: name, service: service, reached: seen})
}

// follow watches until every step was seen, printing each as it happens.
func (s *story) follow(ctx context.Context, limit time.Duration, out io.Writer) error {
	s.began = time.Now()
	for {
		missing := s.missing()
		if len(missing) == 0 {
			return nil
		}
		err := until(ctx, limit, fmt.Sprintf("%q of %s (%s)", missing[0].name, s.name, missing[0].service), func() (bool, error) {
			seen, err := s.poll(ctx, out)
			return seen, err
		})
		if err != nil {
			return err
		}
	}
}

func (s *story) missing() []*step {
	var out []*step
	for _, x := range s.steps {
		if x.at.IsZero() {
			out = append(out, x)
		}
	}
	return out
}

// poll reads the state once and marks what is new; it reports whether anything was.
func (s *story) poll(ctx context.Context, out io.Writer) (bool, error) {
	f, err := s.observe(ctx)
	if err != nil {
		return false, err
	}
	s.last = f
	if s.during == nil && f.node.Annotations[nodemark.SessionAnnotation] != "" {
		s.during = f.node
	}
	anything := false
	for _, x := range s.missing() {
		if x.reached(s.first, f) {
			x.at = time.Now()
			anything = true
			fmt.Fprintf(out, "  %7.2fs  %s  %s  %s\n", x.at.Sub(s.began).Seconds(), s.name, pad(x.name, 34), x.service)
		}
	}
	return anything, nil
}

func (s *story) observe(ctx context.Context) (facts, error) {
	var f facts
	node, err := s.fleet.Node(ctx, s.name)
	if err != nil {
		return f, err
	}
	f.node = node
	if f.pods, err = s.fleet.UserPods(ctx, s.name); err != nil {
		return f, err
	}
	records, err := s.fleet.Records(ctx, s.name)
	if err != nil {
		return f, err
	}
	for _, r := range records {
		switch {
		case r.IsFault() && f.fault.ID == "":
			f.fault = r
		case r.Event.IsHealthy && f.fault.ID != "" && r.Event.CheckName == f.fault.Event.CheckName:
			f.recovery = r
		}
	}
	list, err := s.fleet.Cluster.Dynamic().Resource(RebootNodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, err
	}
	for _, x := range list.Items {
		if name, _, _ := unstructured.NestedString(x.Object, "spec", "nodeName"); name == s.name {
			f.repairs = append(f.repairs, x)
		}
	}
	if s.sense.chain {
		f.chain, err = s.chainStates(ctx)
	}
	return f, err
}

// verify checks the end against the API server, the store and the plugin's journal.
func (s *story) verify(ctx context.Context) error {
	f, err := s.observe(ctx)
	if err != nil {
		return err
	}
	var problems []error
	fail := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	for key := range f.node.Annotations {
		fail(strings.HasPrefix(key, "quarantineHealthEvent") || strings.HasPrefix(key, "dgxc.nvidia.com/nvsentinel") ||
			key == nodemark.LatestFaultRemediationState, "annotation %s remains on %s", key, s.name)
	}
	fail(!s.labels.complete(), "the state labels of %s were %s", s.name, s.labels)
	fail(f.node.Labels[nodemark.StateLabel] != "", "label %s remains on %s", nodemark.StateLabel, s.name)
	fail(f.node.Spec.Unschedulable || len(f.node.Spec.Taints) > 0, "%s is not schedulable", s.name)
	fail(len(f.repairs) != 1, "%d maintenance objects, want 1", len(f.repairs))
	fail(record.Remediated(f.fault.Status) != "true", "faultRemediated is %s", record.Remediated(f.fault.Status))
	fail(f.fault.Status.Remediation == nil || f.fault.Status.Remediation.Outcome != record.OutcomeSucceeded, "remediation has no outcome Succeeded")
	fail(f.recovery.Status.NodeQuarantined != record.UnQuarantined, "the recovery did not release the node")
	reboots, err := s.fleet.Reboots(s.name)
	fail(err != nil, "reading the audit log of the plugin: %v", err)
	fail(reboots != 1, "the plugin rebooted %s %d times, want 1", s.name, reboots)
	nodes, err := s.fleet.Cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	for _, n := range nodes.Items {
		fail(n.Spec.Unschedulable, "healthy node %s is cordoned", n.Name)
	}
	return errors.Join(problems...)
}

// table is the summary: when each step was seen and how long after the one before.
func (s *story) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %s %s %10s %10s\n", pad("step", 34), pad("service", 24), "after", "took")
	before := s.began
	for _, x := range s.steps {
		if x.at.IsZero() {
			fmt.Fprintf(&b, "  %s %s %10s\n", pad(x.name, 34), pad(x.service, 24), "never")
			continue
		}
		took := max(0, x.at.Sub(before))
		before = x.at
		fmt.Fprintf(&b, "  %s %s %9.2fs %9.2fs\n", pad(x.name, 34), pad(x.service, 24), x.at.Sub(s.began).Seconds(), took.Seconds())
	}
	return b.String()
}

func condition(node *corev1.Node, check string) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if string(c.Type) == check {
			return c.Status
		}
	}
	return ""
}

func conditionOf(object unstructured.Unstructured, kind string) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, x := range list {
		if c, ok := x.(map[string]any); ok && c["type"] == kind {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

// snapshot is a node's metadata, spec and conditions without what beats by itself,
// and whether the last of Kubernetes' controllers has written on the new Node: the
// one of the time to live of a kubelet's cache.
func snapshot(ctx context.Context, f *fleet.Fleet, name string) (text string, complete bool, err error) {
	node, err := f.Node(ctx, name)
	if err != nil {
		return "", false, err
	}
	_, complete = node.Annotations[corev1.ObjectTTLAnnotationKey]
	node.ResourceVersion, node.ManagedFields = "", nil
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	b, err := json.Marshal(map[string]any{"metadata": node.ObjectMeta, "spec": node.Spec, "conditions": node.Status.Conditions})
	return string(b), complete, err
}
