package xid

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
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
func (c Catalogue) Event(f Fault, d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	j := c.Evaluate(f, d.Driver)
	d.PCI = f.PCI
	e := s.About(Check, d, message)
	e.IsFatal = j.Fatal
	e.RecommendedAction = record.ActionNumber(d.Action(j.Action))
	e.ErrorCode = []string{f.ErrorCode()}
	e.EntitiesImpacted = append(e.EntitiesImpacted, location.Entities(
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
func Withdrawal(d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	e := s.About(Check, d, message)
	e.IsHealthy = true
	e.ErrorCode = []string{strconv.Itoa(RecoveryAction)}
	return e
}

// Cancellation makes the recovery that a code brings for others of its device.
func Cancellation(d location.Device, s location.Sighting, source string, targets []string) *protos.HealthEvent {
	e := s.About(Check, d, "Cleared by XID "+source)
	e.IsHealthy = true
	e.ErrorCode = slices.Clone(targets)
	e.Metadata[MetadataCancelledBy] = source
	return e
}

// RecoveryAction is the code of "GPU recovery action changed from 0x0 (None) to
// 0x1 (GPU Reset Required)".
const RecoveryAction = 154

// becomes is the number of the new action; the words in parentheses differ between
// drivers. The name of the process, which stands before, is too short for it.
var becomes = regexp.MustCompile(`GPU recovery action changed from 0x[0-9a-fA-F]{1,8}(?: \([^()]{0,64}\))? to 0x([0-9a-fA-F]{1,8}) ?\(`)

// Numbers of recovery actions (nvmlDeviceGpuRecoveryAction_t).
const (
	actionNone          = 0
	actionReset         = 1
	actionReboot        = 2
	actionDrainP2P      = 3
	actionDrainAndReset = 4
	actionIMEXDomain    = 5
	actionBusReset      = 6
	actionSystemReboot  = 7
)

// newAction reads the number of the action that an XID 154 sets.
func newAction(text string) (number uint64, ok bool) {
	m := becomes.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	number, err := strconv.ParseUint(m[1], 16, 32)
	return number, err == nil
}

// Withdrawn reports whether the fault is an XID 154 by which the driver takes its
// recovery action back: it is no fault but the end of one.
func (f Fault) Withdrawn() bool {
	number, ok := newAction(f.Text)
	return f.Code == RecoveryAction && ok && number == actionNone
}

// evaluateRecoveryAction decides about an XID 154 by its number. The action is a
// mark in the driver's memory: a reboot takes it away, and what needs it still
// is logged again. A line without a known number is fatal, for a person.
func evaluateRecoveryAction(text string) Evaluation {
	number, ok := newAction(text)
	if !ok {
		return Evaluation{record.ActionContactSupport, true, false, Undecided}
	}
	switch number {
	case actionNone:
		return evaluationOf(record.ActionNone, ActionInText)
	case actionReset, actionDrainAndReset:
		return evaluationOf(record.ActionComponentReset, ActionInText)
	case actionReboot, actionSystemReboot, actionBusReset:
		// The reset of one GPU is not that of its bus; a reboot is that too.
		return evaluationOf(record.ActionRestartBM, ActionInText)
	case actionDrainP2P, actionIMEXDomain:
		return Evaluation{record.ActionContactSupport, true, true, ActionInText}
	}
	return Evaluation{record.ActionContactSupport, true, false, Undecided}
}
