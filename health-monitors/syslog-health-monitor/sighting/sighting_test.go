package sighting

import (
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
