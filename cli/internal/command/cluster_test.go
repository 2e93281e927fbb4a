package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestBothSources: the chain names line, rule, record and object; the fleet
// names the node and every consumer; nothing is changed by the asking.
func TestBothSources(t *testing.T) {
	w := newWorld(t)
	before := w.snapshot(t)
	p := command.Program{Store: w.dsn}
	why := run(t, p, "why", w.node.Name, "--kubeconfig", w.viewer)
	for _, want := range []string{
		w.node.Name + ": remediating", line, `Matched by rule "fatal": cordon`, "[record " + w.fault.ID + "]",
		"[RebootNode/" + w.object + "]", "SignalSent=True",
	} {
		why.expect(t, command.ExitComplete, want, "")
	}
	status := run(t, p, "status", "--kubeconfig", w.viewer)
	for _, want := range []string{"remediating 1", w.node.Name + "  remediating", "fault-quarantine   1", "node-drainer       1", "fault-remediation  1"} {
		status.expect(t, command.ExitComplete, want, "")
	}
	if after := w.snapshot(t); before != after {
		t.Errorf("something changed:\nbefore %s\nafter  %s", before, after)
	}
	tl := decode[timeline.Timeline](t, run(t, p, "why", w.node.Name, "--kubeconfig", w.viewer, "-o", "json"))
	if tl.Standing.Phase != timeline.Remediating || len(tl.Stays) != 1 || tl.Stays[0].Session != w.fault.ID || len(tl.Notes) != 0 {
		t.Errorf("timeline %+v", tl)
	}
	fleet := decode[timeline.Fleet](t, run(t, p, "status", "--kubeconfig", w.viewer, "-o", "json"))
	if fleet.Counts[timeline.Remediating] != 1 || len(fleet.Consumers) != 3 || fleet.Consumers[0].Waiting != 1 || fleet.Total < 1 {
		t.Errorf("fleet %+v", fleet)
	}
}

// TestOneSource: what the other knows is reported, and the missing one named.
func TestOneSource(t *testing.T) {
	w := newWorld(t)
	closed := unreachable(t, w.viewer)
	for _, tt := range []struct {
		name         string
		p            command.Program
		kubeconfig   string
		why, message string
	}{
		{"no store", command.Program{}, w.viewer, line, "namespace nvsentinel has none"},
		{"store is not there", command.Program{Store: storetest.SQLiteDSN(t)}, w.viewer, "RebootNode/" + w.object, "no such file or directory"},
		{"no database server", command.Program{Store: "postgres://u@127.0.0.1:1/d"}, w.viewer, line, "! store not read: "},
		{"no kubeconfig", command.Program{Store: w.dsn}, filepath.Join(t.TempDir(), "none"), `by rule "fatal"`, "! API server not read: "},
		{"API server is away", command.Program{Store: w.dsn}, closed, `by rule "fatal"`, "connection refused"},
		{"no rights", command.Program{Store: w.dsn}, w.account(t, "nobody", ""), `by rule "fatal"`, "forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			why := run(t, tt.p, "why", w.node.Name, "--kubeconfig", tt.kubeconfig)
			why.expect(t, command.ExitPartial, tt.why, "")
			why.expect(t, command.ExitPartial, tt.message, "")
			why.expect(t, command.ExitPartial, w.node.Name+": remediating", "")
			status := run(t, tt.p, "status", "--kubeconfig", tt.kubeconfig)
			status.expect(t, command.ExitPartial, tt.message, "")
			status.expect(t, command.ExitPartial, w.node.Name+"  remediating", "")
		})
	}
}

// unreachable is a kubeconfig whose server has no listener.
func unreachable(t *testing.T, kubeconfig string) string {
	t.Helper()
	return edited(t, kubeconfig, map[string]string{"server": "https://127.0.0.1:1"}) // a port that no test is given
}

// edited is a kubeconfig with other values of some keys.
func edited(t *testing.T, kubeconfig string, values map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, x := range lines {
		for key, value := range values {
			if before, _, ok := strings.Cut(x, key+": "); ok {
				lines[i] = before + key + ": " + value
			}
		}
	}
	path := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnknownNode: absence is certain only if both sources were read.
func TestUnknownNode(t *testing.T) {
	w := newWorld(t)
	both := run(t, command.Program{Store: w.dsn}, "why", "gpu-99", "--kubeconfig", w.viewer)
	both.expect(t, command.ExitAbsent, "gpu-99: node-deleted", "")
	both.expect(t, command.ExitAbsent, "the Node does not exist", "")
	run(t, command.Program{}, "why", "gpu-99", "--kubeconfig", w.viewer).expect(t, command.ExitPartial, "store not read", "")
	run(t, command.Program{Store: w.dsn}, "why", "gpu-99").expect(t, command.ExitPartial, "gpu-99: unknown", "")
	// A node that is deleted but has a record is not unknown.
	storetest.MustAppend(t, w.records, storetest.Record("gone-1", func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }))
	run(t, command.Program{Store: w.dsn}, "why", "gone-1", "--kubeconfig", w.viewer).expect(t, command.ExitComplete, "PERSIST_ONLY, stored only", "")
}

// TestPartOfASource: the Node was read, the maintenance objects may not be.
func TestPartOfASource(t *testing.T) {
	w := newWorld(t)
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes-only}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
`)
	a := run(t, command.Program{Store: w.dsn}, "why", w.node.Name, "--kubeconfig", w.account(t, "nodes-only", "nodes-only"))
	a.expect(t, command.ExitPartial, "! API server read partially: listing rebootnodes", "")
	if strings.Contains(a.out, "not found in the cluster") {
		t.Errorf("an object that was not read is called absent:\n%s", a.out)
	}
}

// TestColour: only where it was asked for, and never in JSON.
func TestColour(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		colour bool
		args   []string
		want   bool
	}{
		{true, []string{"status"}, true},
		{true, []string{"why", w.node.Name}, true},
		{false, []string{"why", w.node.Name}, false},
		{true, []string{"why", w.node.Name, "-o", "json"}, false},
	} {
		a := run(t, command.Program{Store: w.dsn, Colour: tt.colour}, append(tt.args, "--kubeconfig", w.viewer)...)
		if strings.Contains(a.out, "\x1b[") != tt.want {
			t.Errorf("%v with colours %v:\n%q", tt.args, tt.colour, a.out)
		}
	}
}

// TestOlderRecords: an open fault is shown however many records came after it, and the
// output notes that there are others.
func TestOlderRecords(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		storetest.MustAppend(t, w.records, storetest.Record(w.node.Name, func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }))
	}
	a := run(t, command.Program{Store: w.dsn}, "why", w.node.Name, "--limit", "3", "--kubeconfig", w.viewer)
	a.expect(t, command.ExitComplete, `by rule "fatal"`, "")
	a.expect(t, command.ExitComplete, "3 times", "")
	a.expect(t, command.ExitComplete, "raise --limit", "")
}

// TestStaysBehindOlderRecords: a session that is over is shown however many records came
// after it.
func TestStaysBehindOlderRecords(t *testing.T) {
	w := newWorld(t)
	const over = "behind-a-flood"
	at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
	stay := storetest.Record(over, func(r *record.Record) { r.CreatedAt, r.Event.Message = at, line })
	stay.Status = record.Status{
		NodeQuarantined: record.Quarantined, QuarantineFinishTimestamp: &at, Session: stay.ID,
		Faults:            []record.Fault{{Key: "k", ClearedTimestamp: &at, ClearedBy: "manual"}},
		QuarantineVerdict: &record.Verdict{Reason: record.Matched, RuleSets: []string{"fatal"}, Effects: record.Effects{Cordon: true}, At: at},
	}
	storetest.Seed(t, w.records, stay)
	for range 5 {
		storetest.MustAppend(t, w.records, storetest.Record(over, func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }))
	}
	a := run(t, command.Program{Store: w.dsn}, "why", over, "--limit", "3", "--kubeconfig", w.viewer)
	a.expect(t, command.ExitComplete, `by rule "fatal"`, "")
	a.expect(t, command.ExitComplete, "raise --limit", "")
}

// TestDeletedNode: a deleted Node with an open fault.
func TestDeletedNode(t *testing.T) {
	w := newWorld(t)
	if err := w.cluster.Client().CoreV1().Nodes().Delete(t.Context(), w.node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a := run(t, command.Program{Store: w.dsn}, "why", w.node.Name, "--kubeconfig", w.viewer)
	a.expect(t, command.ExitComplete, "node-deleted", "")
	a.expect(t, command.ExitComplete, "the Node is deleted, its quarantine session waits", "")
}

// TestStatusNamesFaultsOfSwitchedPublishers: an open fault whose publisher has switched
// to PERSIST_ONLY is listed with the way out, as text and as JSON.
func TestStatusNamesFaultsOfSwitchedPublishers(t *testing.T) {
	w := newWorld(t)
	p := command.Program{Store: w.dsn}
	if fleet := decode[timeline.Fleet](t, run(t, p, "status", "--kubeconfig", w.viewer, "-o", "json")); len(fleet.Orphaned) != 0 {
		t.Errorf("stranded before the publisher said anything: %+v", fleet.Orphaned)
	}
	storetest.MustAppend(t, w.records, storetest.Record(w.node.Name, func(r *record.Record) {
		r.Event.Agent, r.Event.CheckName, r.Event.ProcessingStrategy = w.fault.Event.Agent, w.fault.Event.CheckName, record.PersistOnly
	}))
	status := run(t, p, "status", "--kubeconfig", w.viewer)
	for _, want := range []string{"1 open faults of publishers that are now PERSIST_ONLY", "with a release of the node", "[record " + w.fault.ID + "]"} {
		status.expect(t, command.ExitComplete, want, "")
	}
	fleet := decode[timeline.Fleet](t, run(t, p, "status", "--kubeconfig", w.viewer, "-o", "json"))
	if len(fleet.Orphaned) != 1 || fleet.Orphaned[0].Record != w.fault.ID || fleet.Orphaned[0].Node != w.node.Name {
		t.Errorf("stranded %+v", fleet.Orphaned)
	}
}

// TestNodeHealthChecks: why and status name the check that has a node in hand, by the
// rights that the page asks for; a check of other nodes is the fleet's only.
func TestNodeHealthChecks(t *testing.T) {
	w := newWorld(t)
	text, err := os.ReadFile("../../../distros/helm/nvsentinel/manifests/crds/remediation.medik8s.io_nodehealthchecks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(text))
	checks := w.cluster.Dynamic().Resource(schema.GroupVersionResource{Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"})
	for name, selector := range map[string]map[string]any{
		"workers": {"matchLabels": map[string]any{"kubernetes.io/hostname": w.node.Labels["kubernetes.io/hostname"]}},
		"others":  {"matchLabels": map[string]any{"other": "pool"}},
	} {
		o, err := checks.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"selector": selector, "minHealthy": "51%",
				"remediationTemplate": map[string]any{"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNodeTemplate", "name": "reboot"},
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = checks.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
		if name == "others" {
			continue
		}
		o.Object["status"] = map[string]any{
			"observedNodes": int64(9), "healthyNodes": int64(4), "phase": "Remediating", "reason": "Remediating: 5 wait: too few nodes are healthy",
			"stormRecoveryActive": true, "stormRecoveryStartTime": "2026-01-01T00:00:00Z",
			"unhealthyNodes": []any{map[string]any{"name": w.node.Name, "remediations": []any{map[string]any{
				"resource": map[string]any{"kind": "RebootNode", "name": "the-reboot", "apiVersion": "janitor.dgxc.nvidia.com/v1alpha1"}, "started": "2026-01-01T00:00:00Z",
			}}}},
		}
		if _, err := checks.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := command.Program{Store: w.dsn}
	why, status := run(t, p, "why", w.node.Name, "--kubeconfig", w.viewer), run(t, p, "status", "--kubeconfig", w.viewer)
	for _, want := range []string{"NodeHealthCheck workers: Remediating, storm recovery since 2026-01-01 00:00:00", "5 wait: too few nodes are healthy", "RebootNode/the-reboot since 2026-01-01"} {
		why.expect(t, command.ExitComplete, want, "")
		status.expect(t, command.ExitComplete, want, "")
	}
	status.expect(t, command.ExitComplete, "NodeHealthCheck others: not reconciled yet", "")
	if strings.Contains(why.out, "others") {
		t.Errorf("why tells of a check of other nodes:\n%s", why.out)
	}
}
