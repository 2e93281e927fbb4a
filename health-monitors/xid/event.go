package xid

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
)

// Names of the XID check on the wire.
const (
	Check = "SysLogsXIDError"
	// MetadataPolicy names the policy of a code that its bucket alone did not decide.
	MetadataPolicy = "xidPolicy"
	// EntityGPUInstance and EntityComputeInstance are those of a partitioned GPU.
	EntityGPUInstance     = "GPU_INSTANCE"
	EntityComputeInstance = "COMPUTE_INSTANCE"
)

// Event makes the health event of one reported XID; message is the raw line.
func (c Catalogue) Event(f Fault, d sighting.Device, s sighting.Sighting, message string) *protos.HealthEvent {
	j := c.Judge(f, d.Driver)
	d.PCI = f.PCI
	e := s.About(Check, d, message)
	e.IsFatal = j.Fatal
	e.RecommendedAction = record.ActionNumber(d.Action(j.Action))
	e.ErrorCode = []string{f.ErrorCode()}
	e.EntitiesImpacted = append(e.EntitiesImpacted, sighting.Entities(
		[2]string{EntityGPUInstance, f.GPUInstance}, [2]string{EntityComputeInstance, f.ComputeInstance},
		[2]string{"GPC", f.GPC}, [2]string{"TPC", f.TPC}, [2]string{"SM", f.SM}, [2]string{"NVLINK", f.Link})...)
	maps.Copy(e.Metadata, registerMetadata(f.LinkRegisters))
	if j.Policy != ByBucket {
		e.Metadata[MetadataPolicy] = string(j.Policy)
	}
	return e
}

// MetadataCancelledBy names the code whose report cleared others.
const MetadataCancelledBy = "nvsentinel.nvidia.com/cancel-source-error-code"

// Withdrawal makes the recovery of an XID 154 that the driver took back; message
// is the raw line.
func Withdrawal(d sighting.Device, s sighting.Sighting, message string) *protos.HealthEvent {
	e := s.About(Check, d, message)
	e.IsHealthy = true
	e.ErrorCode = []string{strconv.Itoa(RecoveryAction)}
	return e
}

// Cancellation makes the recovery that a code brings for others of its device.
func Cancellation(d sighting.Device, s sighting.Sighting, source string, targets []string) *protos.HealthEvent {
	e := s.About(Check, d, "Cleared by XID "+source)
	e.IsHealthy = true
	e.ErrorCode = slices.Clone(targets)
	e.Metadata[MetadataCancelledBy] = source
	return e
}
