package watch

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/fallenoff"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/storm"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// stateNote is the name of the state beside the outbox.
const stateNote = "state"

// checks are the checks of this monitor that report a recovery after every
// reboot, whatever is remembered.
var checks = []string{xid.Check, sxid.Check, fallenoff.Check}

// maxOwners bounds what is kept of the driver's lines about its GPUs.
const maxOwners = 256

// state is what must survive the process. It is written in one transaction with
// the events that it goes with.
type state struct {
	// Boot is the boot id seen last, PastBoot the one before it.
	Boot     string `json:"boot"`
	PastBoot string `json:"pastBoot,omitempty"`
	// Cursor is the place behind the last line that was taken.
	Cursor json.RawMessage `json:"cursor,omitempty"`
	// InitialRead is when reading began on a node that no state knows of; zero once
	// the end of its log was reached.
	InitialRead time.Time `json:"firstLook,omitzero"`
	// Through is the seq of the last event of a past boot.
	Through uint64 `json:"through,omitempty"`
	// Owed holds the checks whose recovery is not settled since the last reboot;
	// true when a fault was seen under the new boot.
	Owed map[string]bool `json:"owed,omitempty"`
	// Memory is what each check has reported since its last healthy event.
	Memory map[string]recovery.Memory `json:"memory,omitempty"`
	// Fallen is a message about a GPU off the bus whose end has not been read.
	Fallen fallenoff.Begun `json:"fallen,omitzero"`
	// Storms are the events that are counted and not reported one by one.
	Storms storm.Counter `json:"storms,omitzero"`
	// GSP is the GPU whose GSP has failed just now.
	GSP failedGSP `json:"gsp,omitzero"`
	// Owners maps PCI addresses to GPU UUIDs as the driver logged them.
	Owners map[string]string `json:"owners,omitempty"`
	// Patterns is what patterns remember between lines of one boot.
	Patterns pattern.Memory `json:"patterns,omitzero"`
	// Lost holds the PCI addresses of GPUs that are off the bus since the boot.
	Lost map[string]bool `json:"lost,omitempty"`
}

func newState() state {
	return state{Owed: map[string]bool{}, Memory: map[string]recovery.Memory{}, Owners: map[string]string{}}
}

func decodeState(data []byte) (state, error) {
	s := newState()
	if len(data) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("decoding the state: %w", err)
	}
	return s, nil
}

func (s state) encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	return data, nil
}

func (s state) clone() state {
	s.Owed, s.Owners, s.Memory = maps.Clone(s.Owed), maps.Clone(s.Owners), maps.Clone(s.Memory)
	s.Storms = s.Storms.Clone()
	s.Patterns, s.Lost = s.Patterns.Clone(), maps.Clone(s.Lost)
	for check, m := range s.Memory {
		s.Memory[check] = m.Clone()
	}
	return s
}

// turn makes boot the current one; last is the newest event in the outbox.
func (s *state) turn(boot string, last uint64) {
	s.PastBoot, s.Boot, s.Through = s.Boot, boot, last
	clear(s.Owners)
	s.Patterns, s.Lost, s.GSP = pattern.Memory{}, nil, failedGSP{}
	for _, check := range checks {
		s.Owed[check] = false
	}
	for check := range s.Memory {
		s.Owed[check] = false // of patterns and gaps: those that have reported something
	}
}

// lose notes that a GPU is off the bus.
func (s *state) lose(pci string) {
	if s.Lost == nil {
		s.Lost = map[string]bool{}
	}
	if len(s.Lost) < maxOwners {
		s.Lost[pci] = true
	}
}

// lost reports whether a GPU is off the bus, or, without an address, any is.
func (s *state) lost(pci string) bool { return s.Lost[pci] || pci == "" && len(s.Lost) > 0 }

// own remembers which GPU the driver found at a PCI address.
func (s *state) own(pci, uuid string) {
	if _, known := s.Owners[pci]; known || len(s.Owners) < maxOwners {
		s.Owners[pci] = uuid
	}
}

func (s *state) remember(check string, r recovery.Report) {
	m := s.Memory[check]
	m.Add(r)
	s.Memory[check] = m
}

// forget drops codes of a device that were cleared.
func (s *state) forget(check, device string, codes []string) {
	m := s.Memory[check]
	m.Forget(device, codes)
	s.Memory[check] = m
}

// faulted notes a fault under the new boot for a check that owes a recovery.
func (s *state) faulted(check string) {
	if _, owed := s.Owed[check]; owed {
		s.Owed[check] = true
	}
}
