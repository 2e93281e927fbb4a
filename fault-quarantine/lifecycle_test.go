package faultquarantine_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// tainting is a rule set that cordons, taints and labels.
const tainting = `
[[ruleSets]]
enabled = true
name = "all"
[[ruleSets.match.all]]
kind = "HealthEvent"
expression = "event.isFatal"
[ruleSets.cordon]
shouldCordon = true
[ruleSets.taint]
key = "example.com/fault"
value = "gpu"
effect = "NoSchedule"
[ruleSets.label]
key = "example.com/fault"
value = "gpu"
`

func here(t *testing.T) *site {
	t.Helper()
	return newSite(t, localcluster.ForTest(t, localcluster.Options{}), storetest.SQLiteDSN(t))
}

// TestAPersonReleasesANode uncordons, or untaints, a node in quarantine, with
// the service there and away. The session is cancelled, nothing of the project is left,
// and only a new fault takes the node again.
func TestAPersonReleasesANode(t *testing.T) {
	s := here(t)
	s.configure("[circuitBreaker]\npercentage = 100\n" + tainting)
	untaint := func(name string) {
		s.edit(name, func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/fault" })
		})
	}
	p := s.start()
	for i, tt := range []struct {
		name   string
		away   bool
		undo   func(string)
		marker string
		metric string
	}{
		{"uncordon", false, s.uncordon, nodemark.QuarantinedNodeUncordonedManually, "nodes_manually_uncordoned_total 1"},
		{"untaint", false, untaint, nodemark.QuarantinedNodeUntaintedManually, "nodes_manually_untainted_total 1"},
		{"uncordon while away", true, s.uncordon, nodemark.QuarantinedNodeUncordonedManually, "nodes_manually_uncordoned_total 1"},
		{"untaint while away", true, untaint, nodemark.QuarantinedNodeUntaintedManually, "nodes_manually_untainted_total 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := s.nodes(fmt.Sprintf("hand%d", i), 1, nil)[0]
			before := s.node(node)
			first, second := s.fault(node), s.fault(node, func(r *record.Record) { r.Event.ErrorCode = []string{"48"} })
			s.await(first.ID, record.Matched, record.Quarantined)
			s.await(second.ID, record.Matched, record.AlreadyQuarantined)
			s.awaitNode(node, func(n *corev1.Node) bool { return quarantined(n) && len(n.Spec.Taints) > len(before.Spec.Taints) })
			if tt.away {
				p.stop()
			}
			tt.undo(node)
			if tt.away {
				p = s.start()
			}
			for _, f := range []record.Record{first, second} {
				r := s.await(f.ID, record.Matched, record.QuarantineCanceled)
				if r.Status.Faults[0].ClearedBy != record.ClearedManual || r.ExpireAt == nil {
					t.Errorf("record after a manual release: %+v", r.Status.Faults)
				}
			}
			after := s.awaitNode(node, clean)
			want := before.DeepCopy()
			want.Annotations[tt.marker], want.Annotations[nodemark.ReleasedAnnotation] = nodemark.True, first.ID+","+second.ID
			labels := after.DeepCopy().Labels
			for key := range after.Labels { // what a release records about itself
				if strings.HasPrefix(key, nodemark.DefaultLabelPrefix+"uncordon-") {
					delete(labels, key)
				}
			}
			if diff := cmp.Diff(want.Annotations, after.Annotations) + cmp.Diff(want.Labels, labels) + cmp.Diff(want.Spec.Taints, after.Spec.Taints); diff != "" {
				t.Errorf("left over (-want +got):\n%s", diff)
			}
			p.awaitMetric("fault_quarantine_" + tt.metric)
			s.waitForEvent(node, corev1.EventTypeNormal, "NodeReleased", "a user")
			third := s.fault(node)
			s.await(third.ID, record.Matched, record.Quarantined)
			again := s.awaitNode(node, quarantined)
			if again.Annotations[tt.marker] != "" || nodemark.Session(again) != third.ID {
				t.Errorf("the next session: %v", again.Annotations)
			}
		})
	}
	p.stop()
}

// TestAnOptedOutNode keeps its hands off a node with the label, and on again
// without it.
func TestAnOptedOutNode(t *testing.T) {
	s := here(t)
	out := s.nodes("opted", 1, func(n *localcluster.NodeSpec) {
		n.Labels = map[string]string{nodemark.ManagedLabel: nodemark.ManagedOptOut}
	})[0]
	p := s.start()
	s.await(s.fault(out).ID, record.OptedOut, "")
	forced := s.fault(out, func(r *record.Record) { r.Event.QuarantineOverrides = &record.Override{Force: true} })
	s.await(forced.ID, record.OptedOut, "")
	if !clean(s.node(out)) {
		t.Error("an opted out node was marked")
	}
	s.edit(out, func(n *corev1.Node) { delete(n.Labels, nodemark.ManagedLabel) })
	s.await(s.fault(out).ID, record.Matched, record.Quarantined)
	s.awaitNode(out, quarantined)
	p.stop()
}

// TestSwitchToDryRun switches the dry run on and off while nodes are in
// quarantine: new matches have no effect, while clearing, releases and manual
// interventions continue.
func TestSwitchToDryRun(t *testing.T) {
	s := here(t)
	s.configure("[circuitBreaker]\nnodes = 2\npercentage = 100\n")
	names := s.nodes("dry", 4, nil)
	p := s.start()
	for _, name := range names[:2] {
		s.await(s.fault(name).ID, record.Matched, record.Quarantined)
		s.awaitNode(name, quarantined) // a person's hand comes after the mark
	}
	held := s.fault(names[2])
	s.await(held.ID, record.Held, "")
	p.stop()

	p = s.start("--dry-run=true")
	s.await(held.ID, record.DryRun, "")
	s.await(s.fault(names[3], func(r *record.Record) { r.Event.QuarantineOverrides = &record.Override{Force: true} }).ID, record.DryRun, "")
	more := s.fault(names[1], func(r *record.Record) { r.Event.ErrorCode = []string{"48"} })
	s.await(more.ID, record.DryRun, "")
	s.await(s.recovery(names[0]).ID, record.Cleared, record.UnQuarantined)
	s.awaitNode(names[0], clean)
	s.uncordon(names[1])
	s.awaitNode(names[1], clean)
	for _, name := range names[2:] {
		if n := s.node(name); !clean(n) || n.Labels[nodemark.StateLabel] != "" {
			t.Errorf("the dry run wrote to %s: %v", name, n.Annotations)
		}
	}
	p.stop()

	p = s.start()
	s.await(s.fault(names[0]).ID, record.Matched, record.Quarantined)
	s.awaitNode(names[0], quarantined)
	for _, id := range []string{held.ID, more.ID} {
		if r := s.get(id); r.Reason() != record.DryRun || r.ExpireAt == nil {
			t.Errorf("a dry verdict is not final: %s", r.Reason())
		}
	}
	p.stop()
}

// TestTheBudgetChangesWhileItRuns: faults are held, shown by metric and Event,
// and served oldest first as the file gives capacity; a reset forgets what counted.
func TestTheBudgetChangesWhileItRuns(t *testing.T) {
	s := here(t)
	s.configure("[circuitBreaker]\nnodes = 0\n")
	names := s.nodes("held", 4, func(n *localcluster.NodeSpec) { n.Labels = map[string]string{"pool": n.Name[:4]} })
	p := s.start()
	var ids []string
	for _, name := range names {
		f := s.fault(name)
		s.await(f.ID, record.Held, "")
		ids = append(ids, f.ID)
	}
	p.awaitMetric("nvsentinel_fault_quarantine_held_nodes 4")
	p.awaitMetric(`fault_quarantine_breaker_state{state="TRIPPED"} 1`)
	s.waitForEvent(names[0], corev1.EventTypeWarning, "QuarantineHeld", "budget circuitBreaker: 0 nodes")

	s.configure("[circuitBreaker]\nnodes = 1\n")
	s.await(ids[0], record.Matched, record.Quarantined)
	s.configure("[circuitBreaker]\nnodes = 1\nunknown = 2\n") // is not used
	p.awaitMetric("nvsentinel_config_reload_failed 1")
	s.configure(fmt.Sprintf("[circuitBreaker]\nnodes = 1\nresetAt = %s\n", time.Now().UTC().Format(time.RFC3339Nano)))
	s.await(ids[1], record.Matched, record.Quarantined)
	s.await(s.recovery(names[2]).ID, record.Cleared, "")
	s.await(ids[2], record.Superseded, "")
	p.awaitMetric("nvsentinel_fault_quarantine_held_nodes 1")

	s.configure("[circuitBreaker]\nenabled = false\n[[budgets]]\nname = \"pool\"\nlabel = \"pool\"\npercentage = 75\n")
	s.await(ids[3], record.Matched, record.Quarantined)
	p.awaitMetric(`nvsentinel_fault_quarantine_budget_used{budget="pool"} 3`)
	s.awaitNode(names[3], quarantined)
	want := []string{names[0], names[1], names[3]}
	testkit.Until(t, waitTimeout, func() bool { return len(s.inQuarantine(names)) >= len(want) }) // a verdict comes before its mark
	if got := s.inQuarantine(names); !cmp.Equal(got, want) {
		t.Errorf("in quarantine are %v, want %v", got, want)
	}
	p.stop()
}

// TestNoGPUNodes: nothing to take a percentage of is a normal state.
func TestNoGPUNodes(t *testing.T) {
	s := here(t)
	p := s.start("--gpu-node-label=example.com/none=true")
	testkit.Until(t, waitTimeout, func() bool { code, _ := p.get("/readyz"); return code == 200 })
	p.awaitMetric(`fault_quarantine_breaker_state{state="CLOSED"} 1`)
	names := s.nodes("nogpu", 2, func(n *localcluster.NodeSpec) { n.GPUs = -1 })
	s.await(s.fault(names[0]).ID, record.Matched, record.Quarantined)
	second := s.fault(names[1])
	s.await(second.ID, record.Held, "")
	s.await(s.recovery(names[0]).ID, record.Cleared, record.UnQuarantined)
	s.await(second.ID, record.Matched, record.Quarantined)
	s.awaitNode(names[1], quarantined)
	p.stop()
}

// TestAFaultOfAnUnknownMachineIsVisible: a record without identity that is older
// than its Node waits, and the wait is reported.
func TestAFaultOfAnUnknownMachineIsVisible(t *testing.T) {
	s := here(t)
	node := s.nodes("unsure", 1, nil)[0]
	f := s.fault(node, func(r *record.Record) {
		r.Node, r.CreatedAt = record.NodeIdentity{}, s.node(node).CreationTimestamp.Add(-time.Hour)
	})
	p := s.start()
	p.awaitMetric(`nvsentinel_fault_quarantine_waiting_nodes{reason="MachineUnknown"} 1`)
	s.waitForEvent(node, corev1.EventTypeWarning, "MachineUnknown", "older than this Node")
	if r := s.get(f.ID); r.Evaluated() || !clean(s.node(node)) {
		t.Errorf("judged %s", r.Reason())
	}
	s.await(s.recovery(node).ID, record.Cleared, "")
	p.awaitMetric(`nvsentinel_fault_quarantine_waiting_nodes{reason="MachineUnknown"} 0`)
	p.stop()
}

// TestTheAPIServerIsAway: what cannot be known is not decided; faults and
// recoveries of the outage are carried out after it, also by a service that
// was started in it.
func TestTheAPIServerIsAway(t *testing.T) {
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := newSite(t, cluster, storetest.SQLiteDSN(t))
	s.configure("[circuitBreaker]\npercentage = 75\n")
	names := s.nodes("away", 4, nil)
	p := s.start()
	s.await(s.fault(names[0]).ID, record.Matched, record.Quarantined)
	s.awaitNode(names[0], quarantined)

	cluster.StopAPIServer()
	recovery, fault := s.recovery(names[0]), s.fault(names[1])
	testkit.Until(t, waitTimeout, func() bool {
		log, err := os.ReadFile(p.log)
		return err == nil && strings.Count(string(log), "reading node "+names[1]) > 0
	})
	if s.get(recovery.ID).Evaluated() || s.get(fault.ID).Evaluated() {
		t.Error("judged without knowing the Node")
	}
	p.kill()
	p = s.start()
	third := s.fault(names[2])
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await(recovery.ID, record.Cleared, record.UnQuarantined)
	s.await(fault.ID, record.Matched, record.Quarantined)
	s.await(third.ID, record.Matched, record.Quarantined)
	s.awaitNode(names[0], clean)
	s.awaitNode(names[1], quarantined)
	s.awaitNode(names[2], quarantined)
	s.await(s.fault(names[3]).ID, record.Matched, record.Quarantined)
	p.stop()
}

// TestBadConfigurationIsNamed starts the service with files that it must refuse.
func TestBadConfigurationIsNamed(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	rule := func(expression string) string {
		return "[[ruleSets]]\nenabled = true\nname = \"r\"\ncordon.shouldCordon = true\n[[ruleSets.match.all]]\nkind = \"HealthEvent\"\nexpression = '''" + expression + "'''\n"
	}
	for name, tt := range map[string]struct{ text, want string }{
		"CEL that does not compile": {rule("event.isFatal &&"), `ruleSets[0] ("r").match.all[0].expression`},
		"CEL that returns a number": {rule("1 + 2"), `ruleSets[0] ("r").match.all[0].expression: the result type is int, must be bool`},
		"an unknown key":            {"[circuitBreaker]\npercent = 3\n", `unknown key "circuitBreaker.percent"`},
		"an unknown table":          {"[circuit-breaker]\n", `unknown key "circuit-breaker"`},
		"a percentage":              {"[circuitBreaker]\npercentage = 101\n", "circuitBreaker.percentage is 101"},
		"a duration":                {"[circuitBreaker]\nduration = \"soon\"\n", "circuitBreaker.duration"},
		"a budget of nothing":       {"[[budgets]]\nname = \"x\"\n", "budgets[0] has no limit"},
		"a budget twice":            {"[[budgets]]\nname = \"x\"\nnodes = 1\n[[budgets]]\nname = \"x\"\nnodes = 1\n", "budgets[1].name"},
		"a reference in a label":    {rule("true") + "label.key = \"x\"\nlabel.value = \"${file:/etc/hostname}\"\n", `key "ruleSets[0].match.all[0].label.value": ${file:/etc/hostname}: a reference is allowed only in keys of type secret`},
		"a selector":                {"gpuNodeLabel = \"a=b=c\"\n", "gpuNodeLabel"},
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/c.toml"
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(path, "--config", file, "--store", "sqlite:///nowhere", "--check-config").CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %v, want an error with %q:\n%s", err, tt.want, out)
			}
		})
	}
}
