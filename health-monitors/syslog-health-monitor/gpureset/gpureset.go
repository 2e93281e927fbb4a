// Package gpureset reads what the GPU reset tool logs about its outcome, and
// makes the events that follow from it. It does no I/O and reads no clock.
package gpureset

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/sighting"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// CodeFailure is the error code of a reset that failed.
const CodeFailure = "GPU_RESET_FAILURE"

// Marker is what every outcome contains.
const Marker = "GPU reset executed: "

// Outcome is what the tool says about one reset.
type Outcome struct {
	// UUID of the GPU.
	UUID    string
	Success bool
}

var outcome = regexp.MustCompile(`^GPU reset executed: (GPU-[0-9a-fA-F-]{36}), success: (true|false)(?:\W|$)`)

// Parse reads an outcome; only lines under the tool's tag are looked at.
func Parse(line string) (Outcome, bool) {
	at := strings.Index(line, Marker)
	if at < 0 || kernellog.Tag(line, at) != kernellog.ResetTag {
		return Outcome{}, false
	}
	m := outcome.FindStringSubmatch(line[at:])
	if m == nil {
		return Outcome{}, false
	}
	return Outcome{UUID: m[1], Success: m[2] == "true"}, true
}

// Failed makes the fault of a reset that failed: the node is drained and
// restarted instead.
func Failed(check string, d sighting.Device, s sighting.Sighting, message string) *protos.HealthEvent {
	e := s.About(check, d, message)
	e.IsFatal = true
	e.RecommendedAction = record.ActionNumber(record.ActionRestartVM)
	e.ErrorCode = []string{CodeFailure}
	return e
}

// Succeeded makes the recovery of a reset: it clears the given codes of the GPU
// and no others.
func Succeeded(check string, d sighting.Device, s sighting.Sighting, codes []string) *protos.HealthEvent {
	e := s.About(check, d, "GPU reset succeeded")
	e.IsHealthy = true
	e.ErrorCode = slices.Clone(codes)
	return e
}
