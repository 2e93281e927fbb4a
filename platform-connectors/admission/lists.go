package admission

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// cutLists bounds entities, codes, their product, and what the faults they make
// take. A fault keeps at least one of each list that it gave, so that no cut
// loses it. A recovery is refused instead: one that names less could speak for
// more, as one without sub-units does for the whole device.
func (n *normaliser) cutLists() *Refusal {
	before := len(n.cuts)
	n.cutEntities()
	n.cutCodes()
	n.cutFaultBytes()
	if n.event.IsHealthy && len(n.cuts) > before {
		return &Refusal{"entitiesImpacted", TooMany, "with errorCode it is longer than a recovery's may be (" +
			string(n.cuts[before]) + "): name less, or nothing for the whole check"}
	}
	return nil
}

func (n *normaliser) cutEntities() {
	e := &n.event
	if len(e.EntitiesImpacted) > MaxEntities {
		e.EntitiesImpacted = e.EntitiesImpacted[:MaxEntities:MaxEntities]
		n.cut(CutEntities)
	}
	units := 0
	over := func(x record.Entity) bool {
		if fault.IsSubUnit(x.EntityType) {
			units++
		}
		return units > MaxSubUnits && fault.IsSubUnit(x.EntityType)
	}
	if e.EntitiesImpacted = slices.DeleteFunc(e.EntitiesImpacted, over); units > MaxSubUnits {
		n.cut(CutSubUnits)
	}
}

func (n *normaliser) cutCodes() {
	e := &n.event
	if len(e.ErrorCode) > MaxCodes {
		e.ErrorCode = e.ErrorCode[:MaxCodes:MaxCodes]
		n.cut(CutCodes)
	}
	if len(e.ErrorCode) > 0 && len(e.EntitiesImpacted)*len(e.ErrorCode) > MaxPairs {
		fit := MaxPairs / len(e.ErrorCode)
		e.EntitiesImpacted = e.EntitiesImpacted[:fit:fit]
		n.cut(CutPairs)
	}
}

// cutFaultBytes shortens the longer of the two lists until the rest fits. One
// entity with one code always does.
func (n *normaliser) cutFaultBytes() {
	e := &n.event
	for size := fault.Size(*e); size > MaxFaultBytes; size = fault.Size(*e) {
		n.cut(CutFaultBytes)
		fit := func(length int) int { return max(1, int(int64(length)*MaxFaultBytes/size)) }
		switch entities, codes := len(e.EntitiesImpacted), len(e.ErrorCode); {
		case entities >= codes && entities > 1:
			e.EntitiesImpacted = slices.Clip(e.EntitiesImpacted[:fit(entities)])
		case codes > 1:
			e.ErrorCode = slices.Clip(e.ErrorCode[:fit(codes)])
		default:
			return
		}
	}
}
