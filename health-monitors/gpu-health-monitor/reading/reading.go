// Package reading is the result of one poll of DCGM in types of its own: no type of DCGM's
// library leaves the package that is linked with it. Its JSON form is what the process that
// talks to DCGM answers. It does no I/O and reads no clock.
package reading

import (
	"cmp"
	"fmt"
	"time"
)

// Health is how bad DCGM calls an incident.
type Health int

// Healths, by DCGM's numbers.
const (
	Pass Health = 0
	Warn Health = 10
	Fail Health = 20
)

// Kind is what sort of thing an entity is, by DCGM's numbers of entity groups.
type Kind int

// Kinds.
const (
	NoEntity        Kind = 0
	GPU             Kind = 1
	VGPU            Kind = 2
	Switch          Kind = 3
	GPUInstance     Kind = 4
	ComputeInstance Kind = 5
	Link            Kind = 6
	CPU             Kind = 7
	CPUCore         Kind = 8
	ConnectX        Kind = 9
)

// Entity is one thing that DCGM knows. Only its number identifies it: texts of incidents
// name other GPUs (DCGM 4.6.0).
type Entity struct {
	Kind Kind `json:"kind"`
	ID   uint `json:"id"`
}

// Compare orders entities by their kind and number.
func (e Entity) Compare(other Entity) int {
	return cmp.Or(cmp.Compare(e.Kind, other.Kind), cmp.Compare(e.ID, other.ID))
}

// Link takes the number of a link apart: the kind and number of the device that it
// belongs to, and its index there.
func (e Entity) Link() (parent Entity, index uint) {
	return Entity{Kind(e.ID & 0xff), e.ID >> 24 & 0xff}, e.ID >> 8 & 0xffff
}

// Status is that of a GPU, by DCGM's numbers.
type Status int

// Statuses. Unknown is also what an unanswered question looks like.
const (
	Unknown      Status = 0
	OK           Status = 1
	Unsupported  Status = 2
	Inaccessible Status = 3
	Lost         Status = 4
	Fake         Status = 5
	Disabled     Status = 6
	Detached     Status = 7
)

// Good reports whether DCGM can determine the GPU's health.
func (s Status) Good() bool { return s == OK || s == Fake }

// Recovery actions that the driver asks for (nvmlDeviceGpuRecoveryAction_t): none, those
// that a reset answers, and the one that needs another boot.
const (
	RecoveryNone          = 0
	RecoveryReset         = 1
	RecoveryReboot        = 2
	RecoveryDrainAndReset = 4
)

// Device is one GPU.
type Device struct {
	ID     uint   `json:"id"`
	Status Status `json:"status"`
	// Unwatched means that no watch covers the GPU: DCGM lists it and refuses to add it to
	// a group.
	Unwatched bool `json:"unwatched,omitempty"`
	// UUID and PCI are empty where DCGM does not know them, as those of a lost GPU.
	UUID string `json:"uuid,omitempty"`
	PCI  string `json:"pci,omitempty"`
	// Margin is what is left to the temperature at which the GPU slows down, in °C;
	// nil where it cannot be read.
	Margin *int64 `json:"margin,omitempty"`
	// RemapPending is true if rows of memory wait for a reset to be replaced; nil where it
	// cannot be read.
	RemapPending *bool `json:"remapPending,omitempty"`
	// Recovery is the recovery action that the driver asks for; nil where it cannot be
	// read.
	Recovery *int64 `json:"recovery,omitempty"`
	// Samples are the values that can be read, by the time of their newest sample in
	// µs since 1970. A value that is blank is not among them.
	Samples map[Field]int64 `json:"samples,omitempty"`
}

// Incident is one of HealthCheck.
type Incident struct {
	// System is the bit of the health system; AllSystems for XIDs that always count.
	System uint32 `json:"system"`
	Health Health `json:"health"`
	// Code is DCGM's number of the error.
	Code   uint   `json:"code"`
	Entity Entity `json:"entity"`
	// Text is for people: DCGM's texts name wrong GPUs and lack arguments.
	Text string `json:"text,omitempty"`
}

// XID is one sample of field 230.
type XID struct {
	Entity Entity `json:"entity"`
	Number int64  `json:"number"`
	// At is the sample's time in µs since 1970: of the kernel's message where the
	// host engine read it there.
	At int64 `json:"at"`
	// GPU is the number of the GPU whose MIG instance it struck; nil where Entity is no
	// instance, or its GPU is not known.
	GPU *uint `json:"gpu,omitempty"`
}

// Time is when the XID was.
func (x XID) Time() time.Time { return time.UnixMicro(x.At) }

// Reading is one whole look: a call that failed leaves none.
type Reading struct {
	// Engine is the version of the host engine.
	Engine  string   `json:"engine,omitempty"`
	Devices []Device `json:"devices"`
	// Switches are the NVSwitches that are watched.
	Switches  []NVSwitch `json:"switches,omitempty"`
	Incidents []Incident `json:"incidents,omitempty"`
	XIDs      []XID      `json:"xids,omitempty"`
	// Next is where the next look for XIDs begins, in µs since 1970: the time of the
	// host engine's clock at this one.
	Next int64 `json:"next,omitempty"`
	// Refusals are the watches that DCGM refused when the connection began.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Trouble is why a poll has no result.
type Trouble string

// Troubles.
const (
	// Unreachable: the host engine does not answer, or refuses.
	Unreachable Trouble = "Unreachable"
	// Hung: a call did not return in its time.
	Hung Trouble = "Hung"
	// Unreadable: the host engine answers, and no value of any GPU can be read.
	Unreadable Trouble = "Unreadable"
)

// Failure is a poll without a result for any GPU.
type Failure struct {
	Trouble Trouble
	// Operation is the call that failed or did not return.
	Operation string
	// Text is for people.
	Text string
}

func (f *Failure) Error() string {
	switch f.Trouble {
	case Hung:
		return fmt.Sprintf("DCGM's %s did not return: %s", f.Operation, f.Text)
	case Unreadable:
		return f.Text
	case Unreachable:
	}
	return fmt.Sprintf("DCGM's %s failed: %s", f.Operation, f.Text)
}

// Refusal is a watch that DCGM refused: what befalls its entity is not seen.
type Refusal struct {
	Entity Entity `json:"entity"`
	// Text is what DCGM reported.
	Text string `json:"text,omitempty"`
}

// kinds are the names of kinds of entities.
var kinds = map[Kind]string{GPU: "GPU", Switch: "NVSWITCH", GPUInstance: "GPU_INSTANCE", ComputeInstance: "COMPUTE_INSTANCE"}

// String is the kind's name in events and metrics.
func (k Kind) String() string {
	if name, ok := kinds[k]; ok {
		return name
	}
	return fmt.Sprintf("DCGM_ENTITY_%d", int(k))
}

// AllSystems is the system of the XIDs that count whatever is watched.
const AllSystems uint32 = 0xffffffff

// systems are the health systems' names of checks, by their bits (DCGM's
// dcgmHealthSystems_t; the names are the earlier NVSentinel's).
var systems = map[uint32]string{
	0x1: "GpuPcieWatch", 0x2: "GpuNvlinkWatch", 0x4: "GpuPmuWatch", 0x8: "GpuMcuWatch", 0x10: "GpuMemWatch", 0x20: "GpuSmWatch",
	0x40: "GpuInforomWatch", 0x80: "GpuThermalWatch", 0x100: "GpuPowerWatch", 0x200: "GpuDriverWatch",
	0x400: "GpuNvswitchNonfatalWatch", 0x800: "GpuNvswitchFatalWatch", 0x1000: "GpuConnectxWatch", 0x2000: "GpuImexWatch",
	AllSystems: "GpuAllWatch",
}

// Check is the name of the check of a health system. An incident of a system that
// is not known is reported under UnknownCheck, and never dropped.
func Check(system uint32) (name string, known bool) {
	if name, known = systems[system]; known {
		return name, true
	}
	return UnknownCheck, false
}

// UnknownCheck is the check of systems that came after this table.
const UnknownCheck = "GpuUnknownWatch"

// Checks are the names of all checks of health systems.
func Checks() []string {
	out := []string{UnknownCheck}
	for _, name := range systems {
		out = append(out, name)
	}
	return out
}
