package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// faulty are faults that come and go in the crash test.
var faulty = []reading.Incident{
	{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(0)},
	{System: 0x10, Health: reading.Fail, Code: 80, Entity: gpu(1)},
	{System: 0x2, Health: reading.Fail, Code: 14, Entity: gpu(0)},
	{System: 0x200, Health: reading.Fail, Code: 126, Entity: gpu(1)},
}

// TestKillsAtAnyMomentLoseAndDoubleNothing kills the monitor, the host engine, or both,
// while faults come and go. Whatever a fault did in between, its events alternate, and at
// the end they show the actual state.
func TestKillsAtAnyMomentLoseAndDoubleNothing(t *testing.T) { kills(t, 9) }

// TestAHundredKillsLoseAndDoubleNothing is the same for longer.
func TestAHundredKillsLoseAndDoubleNothing(t *testing.T) {
	testkit.Long(t, "TestKillsAtAnyMomentLoseAndDoubleNothing kills nine times")
	kills(t, 100)
}

func kills(t *testing.T, rounds int) {
	t.Helper()
	n := newNode(t, 2)
	on := map[int]bool{}
	n.start()
	for round := range rounds {
		i := rand.IntN(len(faulty))
		if on[i] = !on[i]; on[i] {
			n.engine.Incident(faulty[i])
		} else {
			n.engine.Clear(faulty[i].Code)
		}
		wait := n.engine.Calls("HealthCheck") + rand.IntN(6)
		if round%3 != 2 { // else it dies before it has looked
			n.await("some looks", func() bool { return n.engine.Calls("HealthCheck") >= wait })
		}
		if round%3 != 0 {
			n.kill()
		}
		if round%3 != 1 {
			n.engine.Stop()
			n.engine.Start()
		}
		if n.cmd == nil {
			n.start()
		}
	}
	n.connector.Await(t, "the last word on every fault", func(events []*protos.HealthEvent) bool {
		last, _ := lastReports(events)
		for i, x := range faulty {
			if last[fmt.Sprint(x.Code)] != on[i] {
				return false
			}
		}
		return true
	})
	n.readEvents = len(n.connector.Distinct(t))
	n.expectIdle(10)
	if _, wrong := lastReports(n.connector.Distinct(t)); len(wrong) > 0 {
		t.Errorf("told twice in a row: %v", wrong)
	}
}

// lastReports are the last word on each fault, by DCGM's number, and the events that
// repeat the one before.
func lastReports(events []*protos.HealthEvent) (last map[string]bool, wrong []string) {
	last = map[string]bool{}
	for _, x := range events {
		e := record.FromProto(x)
		if e.CheckName == "GpuDcgmConnectivityFailure" {
			continue
		}
		code := numbers[e.ErrorCode[0]]
		if last[code] == !e.IsHealthy {
			wrong = append(wrong, eventLine(e))
		}
		last[code] = !e.IsHealthy
	}
	return last, wrong
}

var numbers = map[string]string{
	"DCGM_FR_VOLATILE_DBE_DETECTED": "4", "DCGM_FR_ROW_REMAP_FAILURE": "80", "DCGM_FR_NVLINK_DOWN": "14", "DCGM_FR_GPU_RECOVERY_REBOOT": "126",
}
