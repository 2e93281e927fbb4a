package fleet

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// chained is the node that a chain repairs.
const chained = "gpu-1"

var validations = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "validations"}

// TestAChain: with every service as a process of its own, a fault is repaired by a
// chain: the node is rebooted once and validated once, although repair-chain is killed
// behind each kind of write, and is released after the validation's verdict alone,
// although its recovery came long before. A validation that fails is tried again from
// the start.
func TestAChain(t *testing.T) {
	testkit.Long(t, "repair-chain TestKilled, fault-quarantine's and fault-remediation's scripts named chain")
	once := t.TempDir()
	b := startChained(t, once)
	if _, err := b.fleet.WriteXID(chained, 0, 79); err != nil {
		t.Fatal(err)
	}
	first := b.validation("")
	b.waitsForItsRepair()
	b.verdict(first, "False")
	second := b.validation(first)
	b.waitsForItsRepair()
	b.verdict(second, "True")
	b.until(func(ctx context.Context) (bool, error) { return b.inService(ctx, chained) })
	if n, err := b.fleet.Reboots(chained); n != 2 || err != nil {
		t.Errorf("%d reboots by two runs, %v", n, err)
	}
	b.traced(second)
	for _, point := range []string{"kept", "created"} {
		if _, err := os.Stat(filepath.Join(once, RepairChain+"_"+point)); err != nil {
			t.Errorf("it was not killed at %s: %v", point, err)
		}
	}
}

func startChained(t *testing.T, once string) *pauseSuite {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard, "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 2, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second,
		Chains:            []string{filepath.Join(root, "tests/fleet/testdata/chain.yaml")},
		Env:               crashEnv(RepairChain, once, "kept:3", "created"),
		RemediationConfig: "[remediationActions.\"RESTART_BM\"]\nchain = \"reboot-and-validate\"\nequivalenceGroup = \"restart\"\nbackoff = \"1s\"\n",
		QuarantineFlags:   []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(chained, 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &pauseSuite{t, f, map[string]int{}}
}

// crashEnv is the environment of a fleet in which a service is killed once at each of its
// points.
func crashEnv(service, once string, points ...string) func(name, node string) []string {
	return func(name, _ string) []string {
		if name != service {
			return nil
		}
		return []string{"NVSENTINEL_CRASH=" + service + "/" + strings.Join(points, ","+service+"/"), "NVSENTINEL_CRASH_ONCE=" + once}
	}
}

// validation is the name of the newest validation, which is another than before.
func (ps *pauseSuite) validation(before string) (name string) {
	ps.Helper()
	ps.until(func(ctx context.Context) (bool, error) {
		list, err := ps.fleet.Cluster.Dynamic().Resource(validations).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		newest := slices.MaxFunc(list.Items, func(x, y unstructured.Unstructured) int {
			return x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time)
		})
		name = newest.GetName()
		return name != before && (before == "" || len(list.Items) == 2), nil
	})
	return name
}

// waitsForItsRepair: the recovery was reported, and the node stays out of service.
func (ps *pauseSuite) waitsForItsRepair() {
	ps.Helper()
	ps.until(func(ctx context.Context) (bool, error) {
		records, err := ps.fleet.Records(ctx, chained)
		return slices.ContainsFunc(records, func(r record.Record) bool { return r.Event.IsHealthy && !r.Evaluated() }), err
	})
	ps.waitForLog([]*Service{ps.fleet.Service("fault-quarantine")}, "RepairUnfinished", chained)
	if node, err := ps.fleet.Node(ps.Context(), chained); err != nil || !node.Spec.Unschedulable {
		ps.Errorf("%s is in service before the verdict, %v", chained, err)
	}
}

// verdict writes the result of a validation to its status.
func (ps *pauseSuite) verdict(name, good string) {
	ps.Helper()
	resource := ps.fleet.Cluster.Dynamic().Resource(validations)
	o, err := resource.Get(ps.Context(), name, metav1.GetOptions{})
	if err != nil {
		ps.Fatal(err)
	}
	o.Object["status"] = map[string]any{"report": "report of " + name, "conditions": []any{map[string]any{"type": "Good", "status": good}}}
	if _, err := resource.UpdateStatus(ps.Context(), o, metav1.UpdateOptions{}); err != nil {
		ps.Fatal(err)
	}
}

// traced: the record has the steps of both runs, and the report leads to the fault.
func (ps *pauseSuite) traced(validation string) {
	ps.Helper()
	records, err := ps.fleet.Records(ps.Context(), chained)
	if err != nil {
		ps.Fatal(err)
	}
	for _, r := range records {
		rem := r.Status.Remediation
		if r.Event.IsHealthy || rem == nil {
			continue
		}
		if len(rem.Attempts) != 2 || rem.Outcome != record.OutcomeSucceeded {
			ps.Fatalf("%+v", rem)
		}
		steps := rem.Attempts[1].Steps
		if len(steps) != 2 || steps[1].State != "Done" || !strings.HasSuffix(steps[1].Object, validation) ||
			steps[1].Inputs[0].Digest != steps[0].Outputs[0].Digest || steps[1].Outputs[0].Preview != "report of "+validation+"\n" {
			ps.Errorf("%+v", steps)
		}
		reported := ps.cli("trace", steps[1].Outputs[0].Digest)
		if !strings.Contains(reported, "for record "+r.ID) || !strings.Contains(reported, "from reboot.boot") {
			ps.Errorf("trace:\n%s", reported)
		}
		return
	}
	ps.Error("no record has a repair")
}
