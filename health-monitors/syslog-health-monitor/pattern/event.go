package pattern

import (
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
)

// MetadataPattern names the rule by which an event was made.
const MetadataPattern = "pattern"

// Event makes the health event of a match about a device, which may be none;
// message is the raw line.
func (f Match) Event(d sighting.Device, s sighting.Sighting, message string) *protos.HealthEvent {
	e := s.About(f.Rule.Check, d, message)
	e.ComponentClass = f.Rule.Class
	e.EntitiesImpacted = append(e.EntitiesImpacted, sighting.Entities(f.Entities...)...)
	e.IsFatal, e.ErrorCode = f.Rule.Fatal, []string{f.Rule.Code}
	e.RecommendedAction = record.ActionNumber(d.Action(f.Rule.Action))
	maps.Copy(e.Metadata, f.Metadata)
	e.Metadata[MetadataPattern] = f.Rule.Name
	return e
}

// Recovery makes the healthy event of a match that ends faults of its check.
func (f Match) Recovery(d sighting.Device, s sighting.Sighting, message string) *protos.HealthEvent {
	e := f.Event(d, s, message)
	e.IsHealthy, e.IsFatal = true, false
	e.RecommendedAction = record.ActionNumber(record.ActionNone)
	e.ErrorCode = slices.Clone(f.Rule.Clears)
	return e
}
