package desk

import (
	"maps"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/ledger"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
)

// misread falsifies facts as the crash tests ask for; they have to notice.
func misread(v *ledger.View) {
	machine := v.Node != nil && crashpoint.Sabotaged("fault-quarantine/ignore-machine")
	clock := crashpoint.Sabotaged("fault-quarantine/order-by-clock")
	if !machine && !clock {
		return
	}
	for _, list := range [][]record.Record{v.Pending, v.Open, v.Past} {
		for i := range list {
			if machine {
				list[i].Node = v.Node.Identity
			}
			if clock {
				list[i].Seq, list[i].SeqEpoch = uint64(list[i].Event.GeneratedTimestamp.UnixNano()), "clock"
				list[i].Event.Metadata = maps.Clone(list[i].Event.Metadata)
				delete(list[i].Event.Metadata, record.MetadataSeqRuns)
			}
		}
	}
}
