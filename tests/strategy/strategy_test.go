package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// story is a line of the seed's two lists and what must hold for it: expect
// fails if the observing cluster shows what the line excludes, or lacks what it
// promises, and also if the acting cluster does not show the contrary, because
// then nothing would be proved.
type story struct {
	line   string
	expect func(t *testing.T, acting, observing *world)
}

// stories are the lines, in the seed's words and order.
var stories = []story{
	{"WILL be: Stored in database (for analysis)", stored},
	{"WILL be: Exported as metrics (for observability)", exportedAsMetrics},
	{"WILL be: Exported by event exporter (for external monitoring)", exportedToReceiver},
	{"will NOT trigger: Node condition creation/updates (Platform Connector skips)", noCondition},
	{"will NOT trigger: Kubernetes event creation (Platform Connector skips)", noEvent},
	{"will NOT trigger: Node quarantine (fault-quarantine skips - no taint, labels, or annotations)", noQuarantine},
	{"will NOT trigger: Node draining (node-drainer module won't receive them - filtered by pipeline)", noDrain},
	{"will NOT trigger: Remediation CR creation (fault-remediation module won't receive them - filtered by pipeline)", noRepair},
	{"will NOT trigger: Pattern analysis (health-events-analyzer ignores them, and does not consider them while running the query)", noPattern},
}

// TestPersistOnlyEvents writes the same faults into the kernel logs of two
// clusters with every service as a process of its own. The monitors of one report
// PROCESS, those of the other PERSIST_ONLY. The second cluster must be, object
// by object, what it was before, and its store must hold what the first's does.
func TestPersistOnlyEvents(t *testing.T) {
	acting, observing := newWorlds(t)
	// A reboot would take the connector's figures with it: it waits for them.
	acting.fleet.Service("janitor").Freeze(true)
	for _, w := range []*world{observing, acting} {
		w.pass("Before")
		w.before = w.calm()
		w.counted(0)
		w.write()
		w.counted(faults)
	}
	acting.fleet.Service("janitor").Freeze(false)
	acting.repaired()
	observing.pass("After")
	for _, w := range []*world{observing, acting} {
		w.after = w.calm()
		w.reread()
	}
	var table strings.Builder
	for _, s := range append([]story{{"the two clusters, object by object", objectByObject}}, stories...) {
		result := "ok"
		if !t.Run(s.line, func(t *testing.T) { s.expect(t, acting, observing) }) {
			result = "FAILED"
		}
		fmt.Fprintf(&table, "| %s | %s/%s | %s |\n", s.line, t.Name(), strings.ReplaceAll(s.line, " ", "_"), result)
	}
	t.Logf("\n| line | test | result |\n|---|---|---|\n%s", table.String())
}

// reread reads the records of the faults again, with what became of them.
func (w *world) reread() {
	w.t.Helper()
	for i, r := range w.records {
		now, err := w.fleet.Store.Get(w.t.Context(), r.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		w.records[i] = now
	}
}

// repaired waits until the faults have gone the whole way: the reboot is done.
func (w *world) repaired() {
	w.t.Helper()
	w.until("the reboot", func(ctx context.Context) error {
		n, err := w.fleet.Reboots(node)
		if err == nil && n == 0 {
			err = errors.New("no reboot")
		}
		return err
	})
	w.until("the repair to be recorded and every fault to be judged", func(ctx context.Context) error {
		records, err := w.fleet.Records(ctx, node)
		if !slices.ContainsFunc(records, func(r record.Record) bool { return record.Remediated(r.Status) == "true" }) {
			return errors.Join(err, errors.New("no record says so"))
		}
		if i := slices.IndexFunc(records, func(r record.Record) bool { return !r.Evaluated() }); i >= 0 {
			return fmt.Errorf("record %s is not judged", records[i].ID)
		}
		return nil
	})
}

// eventTexts returns events as text, without the strategy and the values that are new each time.
func eventTexts(records []record.Record) []string {
	var out []string
	for _, r := range records {
		e := r.Event
		out = append(out, fmt.Sprint(e.Agent, e.CheckName, e.ErrorCode, e.EntitiesImpacted, e.IsFatal, e.IsHealthy, e.Message, e.RecommendedAction))
	}
	slices.Sort(out)
	return out
}

func stored(t *testing.T, acting, observing *world) {
	if diff := cmp.Diff(eventTexts(acting.records), eventTexts(observing.records)); diff != "" {
		t.Errorf("records (-PROCESS +PERSIST_ONLY):\n%s", diff)
	}
	for _, r := range observing.records {
		if r.Event.ProcessingStrategy != record.PersistOnly || r.ExpireAt == nil {
			t.Errorf("record %s: strategy %s, expires %v", r.ID, r.Event.ProcessingStrategy, r.ExpireAt)
		}
		if diff := cmp.Diff(record.Status{}, r.Status); diff != "" {
			t.Errorf("record %s was acted upon:\n%s", r.ID, diff)
		}
	}
	for _, r := range acting.records {
		if r.Event.ProcessingStrategy != record.Process || !r.Evaluated() {
			t.Errorf("record %s: strategy %s, judged %v", r.ID, r.Event.ProcessingStrategy, r.Evaluated())
		}
	}
}

func exportedAsMetrics(t *testing.T, acting, observing *world) {
	const deaf = `nvsentinel_connector_persist_only_agents{agent="syslog-health-monitor"}`
	for _, w := range []*world{acting, observing} {
		if got := sum(w.metrics, fmt.Sprintf(acceptedOf, w.strategy)); got < faults {
			t.Errorf("%s cluster: %v of %d faults are counted as such", w.strategy, got, faults)
		}
	}
	if got := sum(acting.metrics, fmt.Sprintf(acceptedOf, record.PersistOnly)); got != 0 {
		t.Errorf("PROCESS cluster: %v events are counted as PERSIST_ONLY", got)
	}
	if a, o := sum(acting.metrics, deaf), sum(observing.metrics, deaf); a != 0 || o != 1 {
		t.Errorf("the monitor is named as one whose every event is PERSIST_ONLY: %v in the PROCESS cluster, %v in the other", a, o)
	}
	monitor, err := scrape(t.Context(), observing.fleet.Service(fleet.Monitor+"@"+node).Log)
	if err != nil || !strings.Contains(monitor, "syslog_health_monitor_xid_errors") {
		t.Errorf("the monitor's metrics lack its faults: %v", err)
	}
}

func exportedToReceiver(_ *testing.T, acting, observing *world) {
	for _, w := range []*world{acting, observing} {
		w.until("the faults to be exported", func(context.Context) error {
			for _, r := range w.records {
				if got := w.sink.strategy(r.ID); got != string(w.strategy) {
					return fmt.Errorf("record %s is exported as %q", r.ID, got)
				}
			}
			return nil
		})
	}
}

// checks are those of the faults.
var checks = []string{"SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff"}

func noCondition(t *testing.T, acting, observing *world) {
	for _, check := range checks {
		acting.until("condition "+check, func(ctx context.Context) error { return acting.shows(ctx, check) })
		if observing.shows(t.Context(), check) == nil {
			t.Errorf("PERSIST_ONLY cluster: has condition %s", check)
		}
	}
}

func (w *world) node(t *testing.T) *corev1.Node {
	t.Helper()
	n, err := w.fleet.Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func noEvent(t *testing.T, acting, observing *world) {
	acting.until("the Event of a fault that is not fatal", acting.hasEvent)
	if observing.hasEvent(t.Context()) == nil {
		t.Error("PERSIST_ONLY cluster: has an Event of a fault")
	}
}

// hasEvent returns an error until the Event of the non-fatal fault exists.
func (w *world) hasEvent(ctx context.Context) error {
	list, err := w.fleet.Cluster.Client().CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=SysLogsXIDErrorIsNotHealthy"})
	if err == nil && len(list.Items) == 0 {
		err = errors.New("no Event")
	}
	return err
}

func noQuarantine(t *testing.T, acting, observing *world) {
	marks := func(n *corev1.Node) (out []string) {
		for key := range n.Labels {
			if strings.Contains(key, "nvsentinel") || strings.Contains(key, "cordon") {
				out = append(out, key)
			}
		}
		for key := range n.Annotations {
			if strings.Contains(key, "nvsentinel") || strings.Contains(key, "quarantine") {
				out = append(out, key)
			}
		}
		return out
	}
	n := acting.node(t)
	if !n.Spec.Unschedulable || n.Annotations[nodemark.SessionAnnotation] == "" || n.Labels[nodemark.StateLabel] == "" {
		t.Errorf("PROCESS cluster: unschedulable %v, annotations %v, labels %v", n.Spec.Unschedulable, n.Annotations, n.Labels)
	}
	n = observing.node(t)
	if n.Spec.Unschedulable || len(n.Spec.Taints) > 0 || len(marks(n)) > 0 {
		t.Errorf("PERSIST_ONLY cluster: unschedulable %v, taints %v, marks %v", n.Spec.Unschedulable, n.Spec.Taints, marks(n))
	}
}

func noDrain(t *testing.T, acting, observing *world) {
	for w, moved := range map[*world]bool{acting: true, observing: false} {
		got := kinds(changed(w.before, w.after))["- Pod"]
		if got != moved {
			t.Errorf("%s cluster: pods went away: %v, want %v", w.strategy, got, moved)
		}
		updated := slices.ContainsFunc(w.records, func(r record.Record) bool { return r.Status.UserPodsEvictionStatus.Status != "" })
		if updated != moved {
			t.Errorf("%s cluster: a record bears a drain: %v, want %v", w.strategy, updated, moved)
		}
	}
}

func noRepair(t *testing.T, acting, observing *world) {
	for _, kind := range []string{"rebootnodes", "terminatenodes"} {
		resource := schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: kind}
		for w, want := range map[*world]bool{acting: kind == "rebootnodes", observing: false} {
			list, err := w.fleet.Cluster.Dynamic().Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(list.Items) > 0; got != want {
				t.Errorf("%s cluster: %d %s", w.strategy, len(list.Items), kind)
			}
		}
	}
	if n, err := observing.fleet.Reboots(node); n != 0 || err != nil {
		t.Errorf("PERSIST_ONLY cluster: %d reboots, %v", n, err)
	}
}

// noPattern: two observed XID 31 are no pattern, neither alone nor with a PROCESS
// one that comes after them and is evaluated.
func noPattern(t *testing.T, acting, observing *world) {
	const pattern, alone = "RepeatedXID31OnDifferentGPU", "XIDErrorSoloNoBurst"
	acting.until("the pattern to be found", func(ctx context.Context) error { return acting.derived(ctx, pattern) })
	if list, err := observing.fleet.Store.List(t.Context(), store.Query{Selector: record.Selector{Agent: record.AnalyzerAgent}}); err != nil || len(list) > 0 {
		t.Errorf("PERSIST_ONLY cluster: derived %v, %v", eventTexts(list), err)
	}
	observing.publish(&protos.HealthEvent{
		Agent: "syslog-health-monitor", CheckName: "SysLogsXIDError", ComponentClass: "GPU", ErrorCode: []string{"31"},
		EntitiesImpacted: []*protos.Entity{{EntityType: "GPU_UUID", EntityValue: fleet.UUID(node, 7)}}, Message: "MMU Fault",
	})
	observing.until("the PROCESS event to be judged", func(ctx context.Context) error { return observing.derived(ctx, alone) })
	if observing.derived(t.Context(), pattern) == nil {
		t.Error("PERSIST_ONLY cluster: observed events were counted in a window")
	}
}

// derived returns an error until the analyzer has published an event for a rule.
func (w *world) derived(ctx context.Context, rule string) error {
	list, err := w.fleet.Store.List(ctx, store.Query{Selector: record.Selector{Agent: record.AnalyzerAgent}})
	for _, r := range list {
		if r.Event.CheckName == rule {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("derived: %v", eventTexts(list)))
}

// objectByObject compares what the faults changed in each cluster: in the
// observing one nothing at all, in the acting one what the services do.
func objectByObject(t *testing.T, acting, observing *world) {
	if moved := changed(observing.before, observing.after); len(moved) > 0 {
		t.Errorf("PERSIST_ONLY cluster: of %d objects %d changed:\n%s", len(observing.before), len(moved), strings.Join(moved, "\n"))
		for _, c := range moved {
			key := c[2:]
			t.Logf("%s\nbefore %s\nafter  %s", key, observing.before[key], observing.after[key])
		}
	}
	moved := changed(acting.before, acting.after)
	for _, want := range []string{"~ Node", "- Pod", "+ Pod", "+ Event", "+ RebootNode"} {
		if !kinds(moved)[want] {
			t.Errorf("PROCESS cluster: nothing like %q among the changes:\n%s", want, strings.Join(moved, "\n"))
		}
	}
	t.Logf("PERSIST_ONLY: %d objects, none changed; PROCESS: %d changes:\n%s", len(observing.before), len(moved), strings.Join(moved, "\n"))
}
