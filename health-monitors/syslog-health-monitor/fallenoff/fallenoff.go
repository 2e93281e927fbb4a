// Package fallenoff recognises the driver's message about a GPU that no longer
// answers on the PCI bus. The message spans three lines, which arrive as one
// record of the kernel or one by one, with others between them. It does no I/O
// and reads no clock.
package fallenoff

import (
	"regexp"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// Names of the check on the wire.
const (
	Check = "SysLogsGPUFallenOff"
	Code  = "GPU_FALLEN_OFF_BUS"
	// MetadataPCIID is the vendor and device id of the GPU, for example 10de:2330.
	MetadataPCIID = "pciID"
)

// MaxLines is how many lines the end of the message may be behind its beginning.
const MaxLines = 16

// Begun is a message whose end has not been seen. The zero value is none.
type Begun struct {
	// PCI is the address as the driver wrote it.
	PCI string `json:"pci,omitempty"`
	// ID is the PCI id, empty until it is seen.
	ID string `json:"id,omitempty"`
	// Left is how many further lines may pass.
	Left int `json:"left,omitempty"`
}

var (
	beginning = regexp.MustCompile(`^NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{1,32})`)
	identity  = regexp.MustCompile(`PCI ID: ([0-9a-fA-F]{4}:[0-9a-fA-F]{4})\b`)
	closing   = regexp.MustCompile(`^NVRM: (?:installed in this system has )?` + ending)
)

const ending = "fallen off the bus and is not responding to commands"

// Read adds one message of the driver to one that may have begun. The second result is true
// when the message is complete; then it names the GPU that fell.
func (b Begun) Read(text string) (Begun, bool) {
	b = b.Pass(1)
	begins := beginning.FindStringSubmatch(text)
	if begins != nil {
		b = Begun{PCI: begins[1], Left: MaxLines}
	}
	if b.PCI == "" {
		return Begun{}, false
	}
	if m := identity.FindStringSubmatch(text); m != nil && b.ID == "" {
		b.ID = strings.ToLower(m[1])
	}
	return b, closing.MatchString(text) || begins != nil && strings.Contains(text, ending)
}

// Pass lets lines pass that are not the driver's.
func (b Begun) Pass(lines int) Begun {
	if b.Left -= lines; b.Left < 0 {
		return Begun{}
	}
	return b
}

// Event makes the health event of a complete message.
func Event(b Begun, d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	d.PCI = location.Address(b.PCI)
	e := s.About(Check, d, message)
	e.IsFatal = true
	e.RecommendedAction = record.ActionNumber(record.ActionRestartBM)
	e.ErrorCode = []string{Code}
	if b.ID != "" {
		e.Metadata[MetadataPCIID] = b.ID
	}
	return e
}
