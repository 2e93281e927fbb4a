package record_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func digested() record.Event {
	return record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true,
		Message: `NVRM: Xid (PCI:0000:3b:00): 79, name=<unknown>, "ü"`, RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"79"},
		EntitiesImpacted:   []record.Entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"}},
		Metadata:           map[string]string{record.MetadataSeq: "7", record.MetadataSeqEpoch: "epoch", record.MetadataBootID: "boot"},
		GeneratedTimestamp: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.FixedZone("", 3600)), NodeName: "gpu-7",
		DrainOverrides: &record.Override{Skip: true}, ProcessingStrategy: record.Process, ID: "018f0000-0000-7000-8000-000000000001",
	}
}

// TestDigestIsTheOneInStores: an event that is sent again after an upgrade is compared
// with what an earlier version stored. A change of this text makes every such event
// another one, which is refused.
func TestDigestIsTheOneInStores(t *testing.T) {
	const stored = "df155d064f2dd7a280d5605eb00b91e2adf840d4ce78c26ebfb8fd0f4459e134"
	if got := record.Digest(digested()); got != stored {
		t.Errorf("the digest is %s, in stores it is %s", got, stored)
	}
}

func BenchmarkDigest(b *testing.B) {
	b.ReportAllocs()
	for e := digested(); b.Loop(); {
		_ = record.Digest(e)
	}
}
