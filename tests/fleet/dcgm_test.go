package fleet

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestFaultsOfDCGM: with every service as a process of its own, a fault that DCGM detects goes
// from its detection to the released node, and a fault that the kernel log reports too is
// repaired once.
func TestFaultsOfDCGM(t *testing.T) {
	testkit.Long(t, "gpu-health-monitor's own tests tell each fault and its end, the journeys the rest of the way")
	b, built := startDCGM(t)
	t.Run("from the look to the release", func(t *testing.T) { b.T = t; b.recoveryAction("gpu-0", built) })
	t.Run("seen by the kernel too", func(t *testing.T) { b.T = t; b.reportedTwice("gpu-1", built) })
}

func startDCGM(t *testing.T) (*pauseSuite, string) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(t.TempDir(), "cgo")
	err = BuildDCGM(t.Context(), root, built, io.Discard)
	if errors.Is(err, dcgmsim.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: 3, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs("gpu-0", 30) + f.Logs("gpu-1", 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: UserNamespace}}
	if _, err := f.Cluster.Client().CoreV1().Namespaces().Create(t.Context(), users, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &pauseSuite{t, f, map[string]int{}}, built
}

// recoveryAction: a GPU asks for a reboot of its node (field 1523), and is well
// afterwards.
func (ps *pauseSuite) recoveryAction(node, built string) {
	engine, err := ps.fleet.AddDCGM(node, built)
	if err != nil {
		ps.Fatal(err)
	}
	engine.UntilRestart(reading.Incident{System: 0x200, Health: reading.Fail, Code: 126, Entity: reading.Entity{Kind: reading.GPU, ID: 2}})
	ps.until(func(ctx context.Context) (bool, error) {
		object, err := ps.fleet.Node(ctx, node)
		return err == nil && object.Spec.Unschedulable, err
	})
	ps.rebooted(node)
	ps.until(func(ctx context.Context) (bool, error) { return ps.inService(ctx, node) })
	ps.once(node, "GpuDriverWatch", "DCGM_FR_GPU_RECOVERY_REBOOT", UUID(node, 2))
}

// reportedTwice: an XID 79 is in the kernel log and in DCGM.
func (ps *pauseSuite) reportedTwice(node, built string) {
	engine, err := ps.fleet.AddDCGM(node, built)
	if err != nil {
		ps.Fatal(err)
	}
	engine.XID(3, 79)
	if _, err := ps.fleet.WriteXID(node, 3, 79); err != nil {
		ps.Fatal(err)
	}
	for _, check := range []string{"SysLogsXIDError", "GpuAllWatch", "GpuXidWatch"} {
		ps.until(func(ctx context.Context) (bool, error) {
			records, err := ps.fleet.Records(ctx, node)
			return slices.ContainsFunc(records, func(r record.Record) bool { return r.IsFault() && r.Event.CheckName == check }), err
		})
	}
	ps.rebooted(node)
	ps.until(func(ctx context.Context) (bool, error) { return ps.inService(ctx, node) })
	ps.once(node, "GpuAllWatch", "DCGM_FR_FALLEN_OFF_BUS", UUID(node, 3))
	records, err := ps.fleet.Records(ps.Context(), node)
	if err != nil {
		ps.Fatal(err)
	}
	sessions := 0
	for _, r := range records {
		if r.Status.NodeQuarantined == record.Quarantined {
			sessions++
		}
		if r.Event.CheckName == "GpuXidWatch" && (r.Acts() || r.Status.NodeQuarantined != "") {
			ps.Errorf("the XID of DCGM was acted upon: %+v", r.Status)
		}
	}
	if sessions != 1 {
		ps.Errorf("%d sessions, want 1", sessions)
	}
}

// rebooted waits until a node was rebooted.
func (ps *pauseSuite) rebooted(node string) {
	ps.Helper()
	ps.until(func(context.Context) (bool, error) {
		n, err := ps.fleet.Reboots(node)
		return n > 0, err
	})
}

// once: a fault of a GPU has one end, and its node was rebooted once.
func (ps *pauseSuite) once(node, check, code, uuid string) {
	ps.Helper()
	if n, err := ps.fleet.Reboots(node); n != 1 || err != nil {
		ps.Errorf("%d reboots of %s, %v; want 1", n, node, err)
	}
	records, err := ps.fleet.Records(ps.Context(), node)
	if err != nil {
		ps.Fatal(err)
	}
	faults, ends := 0, 0
	for _, r := range records {
		of := slices.ContainsFunc(r.Event.EntitiesImpacted, func(e record.Entity) bool { return e.EntityType == "GPU_UUID" && e.EntityValue == uuid })
		switch {
		case r.Event.CheckName != check || !slices.Contains(r.Event.ErrorCode, code) || !of:
		case r.IsFault():
			faults++
		default:
			ends++
		}
	}
	if faults == 0 || ends != 1 {
		ps.Errorf("%s %s: %d faults, %d ends", check, code, faults, ends)
	}
}
