package recovery

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// CodeResetFailure is the error code of a reset that failed.
const CodeResetFailure = "GPU_RESET_FAILURE"

// ResetMarker is what every outcome contains.
const ResetMarker = "GPU reset executed: "

// ResetOutcome is what the tool reports about one reset.
type ResetOutcome struct {
	// UUID of the GPU.
	UUID    string
	Success bool
}

var resetOutcome = regexp.MustCompile(`^GPU reset executed: (GPU-[0-9a-fA-F-]{36}), success: (true|false)(?:\W|$)`)

// ParseReset reads an outcome; only lines under the tool's tag are looked at.
func ParseReset(line string) (ResetOutcome, bool) {
	at := strings.Index(line, ResetMarker)
	if at < 0 || kernellog.Tag(line, at) != kernellog.ResetTag {
		return ResetOutcome{}, false
	}
	m := resetOutcome.FindStringSubmatch(line[at:])
	if m == nil {
		return ResetOutcome{}, false
	}
	return ResetOutcome{UUID: m[1], Success: m[2] == "true"}, true
}

// ResetFailed makes the fault of a reset that failed: the node is drained and
// restarted instead.
func ResetFailed(check string, d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	e := s.About(check, d, message)
	e.IsFatal = true
	e.RecommendedAction = record.ActionNumber(record.ActionRestartVM)
	e.ErrorCode = []string{CodeResetFailure}
	return e
}

// ResetSucceeded makes the recovery of a reset: it clears the given codes of the GPU
// and no others.
func ResetSucceeded(check string, d location.Device, s location.Sighting, codes []string) *protos.HealthEvent {
	e := s.About(check, d, "GPU reset succeeded")
	e.IsHealthy = true
	e.ErrorCode = slices.Clone(codes)
	return e
}
