package location

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestHealthyClearsTheWholeCheck(t *testing.T) {
	e := record.FromProto(Sighting{Node: "n", Boot: "b2", Strategy: record.Process}.Healthy("SysLogsXIDError"))
	want := record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsHealthy: true,
		Message: "No Health Failures", RecommendedAction: record.ActionNone, NodeName: "n", ProcessingStrategy: record.Process,
		Metadata: map[string]string{"bootID": "b2"}, GeneratedTimestamp: e.GeneratedTimestamp,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:3b:00": "0000:3b:00", "00000000:3B:00.0": "0000:3b:00", "3b:00.1": "0000:3b:00", "00010001:00:1f": "10001:00:1f",
		"": "", ":::": ":::", "Not An Address": "not an address",
	} {
		if got := Address(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestDevice: what is known of a device is named, and nothing else.
func TestDevice(t *testing.T) {
	for name, c := range map[string]struct {
		device   Device
		names    string
		metadata map[string]string
		action   record.Action // of a reset
	}{
		"unknown":       {Device{}, "[]", map[string]string{"bootID": "b"}, record.ActionRestartVM},
		"by the driver": {Device{PCI: "0000:3b:00", UUID: "GPU-1"}, "[{PCI 0000:3b:00} {GPU_UUID GPU-1}]", map[string]string{"bootID": "b"}, record.ActionRestartVM},
		"by the file": {
			Device{PCI: "0000:3b:00", UUID: "GPU-1", Index: "0", Listed: true, Chassis: "C9"}, "[{PCI 0000:3b:00} {GPU_UUID GPU-1} {GPU 0}]",
			map[string]string{"bootID": "b", "chassis_serial": "C9"}, record.ActionComponentReset,
		},
	} {
		e := record.FromProto(Sighting{Boot: "b"}.About("c", c.device, "line"))
		if got := fmt.Sprint(e.EntitiesImpacted); got != c.names || e.Message != "line" {
			t.Errorf("%s: %s named in %q", name, got, e.Message)
		}
		if diff := cmp.Diff(c.metadata, e.Metadata); diff != "" {
			t.Errorf("%s: metadata (-want +got):\n%s", name, diff)
		}
		if got := c.device.Action(record.ActionComponentReset); got != c.action {
			t.Errorf("%s: a reset becomes %s, want %s", name, got, c.action)
		}
		if got := c.device.Action(record.ActionReplaceVM); got != record.ActionReplaceVM {
			t.Errorf("%s: a replacement becomes %s", name, got)
		}
	}
}
