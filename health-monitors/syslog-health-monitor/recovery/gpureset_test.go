package recovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

const uuid = "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7"

func TestParseReset(t *testing.T) {
	for line, want := range map[string]ResetOutcome{
		"nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: true":                                   {uuid, true},
		"nvsentinel-gpu-reset[71]: GPU reset executed: " + uuid + ", success: false, rc 3":                        {uuid, false},
		"Nov 21 05:04:01 n1 nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: true":                {uuid, true},
		"2026-11-21T05:04:01.1+00:00 n1 nvsentinel-gpu-reset[9]: GPU reset executed: " + uuid + ", success: true": {uuid, true},
	} {
		if got, ok := ParseReset(line); !ok || got != want {
			t.Errorf("%q: %+v, %t", line, got, ok)
		}
	}
	for _, line := range []string{
		"", "GPU reset executed: " + uuid + ", success: true", "app: GPU reset executed: " + uuid + ", success: true",
		"app: nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: true",
		"nvsentinel-gpu-reset: GPU reset executed: GPU-b850, success: true", "nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: truely",
		"nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: ", "nvsentinel-gpu-reset: GPU reset executed: ",
	} {
		if o, ok := ParseReset(line); ok {
			t.Errorf("%q was read as %+v", line, o)
		}
	}
}

func TestEventsOfAReset(t *testing.T) {
	d := location.Device{PCI: "0000:18:00", UUID: uuid, Index: "2"}
	s := location.Sighting{Node: "n", Boot: "b", Strategy: record.PersistOnly}
	entities := []record.Entity{{EntityType: "PCI", EntityValue: "0000:18:00"}, {EntityType: "GPU_UUID", EntityValue: uuid}, {EntityType: "GPU", EntityValue: "2"}}
	failed := record.FromProto(ResetFailed("C", d, s, "raw"))
	if diff := cmp.Diff(entities, failed.EntitiesImpacted); diff != "" || !failed.IsFatal || failed.RecommendedAction != record.ActionRestartVM ||
		failed.ErrorCode[0] != "GPU_RESET_FAILURE" || failed.Message != "raw" || failed.ProcessingStrategy != record.PersistOnly {
		t.Errorf("failure %+v, entities (-want +got):\n%s", failed, diff)
	}
	done := record.FromProto(ResetSucceeded("C", d, s, []string{"48", "95"}))
	if diff := cmp.Diff(entities, done.EntitiesImpacted); diff != "" || !done.IsHealthy || done.IsFatal || done.CheckName != "C" ||
		!cmp.Equal(done.ErrorCode, []string{"48", "95"}) || done.ProcessingStrategy != record.PersistOnly {
		t.Errorf("success %+v, entities (-want +got):\n%s", done, diff)
	}
}

var resetSeeds = []string{
	"nvsentinel-gpu-reset: GPU reset executed: " + uuid + ", success: true", "a nvsentinel-gpu-reset[1]: GPU reset executed: " + uuid + ", success: false",
}

func checkResetLine(t *testing.T, raw []byte) {
	if o, ok := ParseReset(kernellog.Clean(raw)); ok && len(o.UUID) != 40 {
		t.Errorf("outcome %+v", o)
	}
}

func TestDamagedLines(t *testing.T) { mutate.Each(t, 2000, resetSeeds, checkResetLine) }

func FuzzLine(f *testing.F) {
	for _, seed := range resetSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkResetLine)
}
