package record_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestCheckOwnerOf(t *testing.T) {
	owners := append(record.DefaultCheckOwners(), record.CheckOwner{Agent: "mine", Checks: []string{"GpuCountMismatch", "Mine*", "[", "XID*"}})
	for check, want := range map[string][2]string{
		"GpuBroken":        {"gpu-health-monitor", "Gpu*"},
		"GpuCountMismatch": {"mine", "GpuCountMismatch"},
		"SysLogsXIDError":  {"syslog-health-monitor", "SysLogs*"},
		"CSPMaintenance":   {"csp-health-monitor", "CSPMaintenance"},
		"CSPMaintenance2":  {},
		"GPUNodeNotReady":  {},
		"MineToo":          {"mine", "Mine*"},
		"":                 {},
		"[":                {"mine", "["},
	} {
		if agent, by := record.CheckOwnerOf(owners, check); agent != want[0] || by != want[1] {
			t.Errorf("%q belongs to %q by %q, want %q", check, agent, by, want)
		}
	}
}
