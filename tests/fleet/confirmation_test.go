package fleet

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The nodes of the test, by who reports their GPU lost.
const (
	kernelAlone   = "gpu-0"
	dcgmAlone     = "gpu-1"
	confirmedNode = "gpu-2"
)

// both has the kernel's XID 79 and DCGM's word wait for each other.
const both = `[[rules]]
name = "lost-gpu"
when = 'event.checkName == "SysLogsXIDError" && "79" in event.errorCode'
second = 'event.agent == "gpu-health-monitor"'
within = "10m"
mutual = true
`

// TestASecondSignal: with every service as a process of its own, an XID 79 of the
// kernel without DCGM's word changes nothing, nor does that without the XID; both
// repair the node, once, although its connector is killed as each arrives.
func TestASecondSignal(t *testing.T) {
	testkit.Long(t, "platform-connectors TestAFaultIsActedUponOnceConfirmed, from the socket to the store and the Node's conditions")
	s := startSignals(t)
	for _, node := range []string{kernelAlone, confirmedNode} {
		if _, err := s.fleet.WriteXID(node, 3, 79); err != nil {
			t.Fatal(err)
		}
	}
	s.lost(dcgmAlone)
	for _, node := range []string{kernelAlone, dcgmAlone, confirmedNode} {
		s.until(func(ctx context.Context) (bool, error) {
			records, err := s.fleet.Records(ctx, node)
			return len(records) == 1, err
		})
		s.fleet.Service(Connector + "@" + node).Kill()
		s.waitForWhy(node, "PERSIST_ONLY, Unconfirmed", "waiting for a second signal about the same device within 10m0s", "until ")
	}
	s.lost(confirmedNode)
	s.fleet.Service(Connector + "@" + confirmedNode).Kill()
	s.until(func(ctx context.Context) (bool, error) {
		n, err := s.fleet.Reboots(confirmedNode)
		return n == 1, err
	})
	s.until(func(ctx context.Context) (bool, error) { return s.inService(ctx, confirmedNode) })
	s.waitForWhy(confirmedNode, `by rule "lost-gpu"`, "not processed on its own (Unconfirmed)", "which confirms the fault", "confirmed and processed as record")
	s.nothingElse()
}

// signals is the suite with a rule for second signals. It embeds the suite of the emergency
// stop, because it needs some of its helpers.
type signals struct{ *pauseSuite }

func startSignals(t *testing.T) signals {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin, err := Build(t.Context(), root, dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"pipeline.toml":     "[[pipeline]]\nname = \"Confirmation\"\nenabled = true\nconfig = \"confirmation.toml\"\n",
		"confirmation.toml": both,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Start(t.Context(), Options{
		Nodes: 3, Store: "sqlite", Root: root, Bin: bin, Progress: io.Discard, SettleTime: time.Second, RebootTime: time.Second,
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
		ConnectorFlags:  []string{"--pipeline-config", filepath.Join(dir, "pipeline.toml")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(confirmedNode, 30))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return signals{&pauseSuite{t, f, map[string]int{}}}
}

// lost is DCGM's word of the GPU whose XID the kernel reports.
func (s signals) lost(node string) {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.fleet.Socket(node), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	e := &protos.HealthEvent{
		Version: 1, Agent: "gpu-health-monitor", ComponentClass: "GPU", CheckName: "GpuAllWatch", NodeName: node, IsFatal: true,
		Message: "GPU is lost", ErrorCode: []string{"DCGM_FR_GPU_LOST"}, RecommendedAction: protos.RecommendedAction_RESTART_BM,
		EntitiesImpacted:   []*protos.Entity{{EntityType: "GPU", EntityValue: "3"}, {EntityType: "GPU_UUID", EntityValue: UUID(node, 3)}},
		GeneratedTimestamp: timestamppb.Now(),
	}
	s.until(func(ctx context.Context) (bool, error) {
		_, err := protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}})
		return true, err
	})
}

// waitForWhy waits until nvsentinel why prints all of these words about a node.
func (s signals) waitForWhy(node string, words ...string) {
	s.Helper()
	var text []byte
	defer func() {
		if s.Failed() {
			s.Logf("%s", text)
		}
	}()
	s.until(func(ctx context.Context) (bool, error) {
		var err error
		text, err = s.fleet.Why(ctx, node)
		for _, w := range words {
			if !bytes.Contains(text, []byte(w)) {
				return false, err
			}
		}
		return true, err
	})
}

// nothingElse: one confirmation, one reboot, and two nodes as they were.
func (s signals) nothingElse() {
	s.Helper()
	for node, want := range map[string]int{kernelAlone: 0, dcgmAlone: 0, confirmedNode: 1} {
		confirmed := 0
		records, err := s.fleet.Records(s.Context(), node)
		if err != nil {
			s.Error(err)
		}
		for _, r := range records {
			if r.Event.Confirms() != "" {
				confirmed++
			} else if r.IsFault() && r.Event.ProcessingStrategy != record.PersistOnly {
				s.Errorf("%s: the fault %s of %s is %s", node, r.ID, r.Event.Agent, r.Event.ProcessingStrategy)
			}
		}
		reboots, err := s.fleet.Reboots(node)
		if err != nil || reboots != want || confirmed != want {
			s.Errorf("%s: %d confirmations, %d reboots, %v; want %d", node, confirmed, reboots, err, want)
		}
		object, err := s.fleet.Node(s.Context(), node)
		if err != nil || object.Spec.Unschedulable {
			s.Errorf("%s is cordoned, %v", node, err)
		}
		s.until(func(ctx context.Context) (bool, error) { return s.shownWell(ctx, node) })
	}
}

// shownWell reports whether a node's conditions name no fault. They follow the records in a
// separate loop, which may be behind the release.
func (s signals) shownWell(ctx context.Context, node string) (bool, error) {
	object, err := s.fleet.Node(ctx, node)
	if err != nil {
		return false, err
	}
	for _, c := range object.Status.Conditions {
		if c.Status == "True" && (strings.HasPrefix(c.Reason, "SysLogsXID") || strings.HasPrefix(c.Reason, "Gpu")) {
			return false, nil
		}
	}
	return true, nil
}
