// Package check evaluates a poll of DCGM: which faults have begun, which have ended, and what
// is to be reported. It is pure: a reading, what was open before, policy and time go in;
// events and what is open now come out.
//
// A fault is one code of one check on one entity. It begins when it was seen in k
// of the last n looks, and ends when k of n looks could have seen it and did not.
// A look that failed, a GPU that is lost, or a value that cannot be read or has no
// recent sample is never taken for health.
package check

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// Agent is the name of this monitor in its events.
const Agent = "gpu-health-monitor"

// Checks that are no health system of DCGM's.
const (
	Connectivity = "GpuDcgmConnectivityFailure"
	Unresponsive = "GpuDcgmUnresponsive"
	LostGPU      = "GpuLostWatch"
	Margin       = "GpuThermalMarginWatch"
	XIDs         = "GpuXidWatch"
	memory       = "GpuMemWatch"
)

// Codes that are no error of DCGM's.
const (
	CodeConnectivity = "DCGM_CONNECTIVITY_ERROR"
	CodeHang         = "DCGM_PROBE_HANG"
	CodeUnreadable   = "DCGM_TELEMETRY_UNAVAILABLE"
	CodeLost         = "GPU_LOST"
	CodeMargin       = "GPU_TEMP_HW_SLOWDOWN_VIOLATION"
	codePending      = "DCGM_FR_PENDING_ROW_REMAP"
	codeNVLinkDown   = "DCGM_FR_NVLINK_DOWN"
	codeFallenOff    = "DCGM_FR_FALLEN_OFF_BUS"
	codeXID          = "DCGM_FR_XID_ERROR"
	codePower        = "DCGM_FR_POWER_UNREADABLE"
)

// Share is k of the last n looks.
type Share struct{ K, N int }

// maxPolls bounds n: as many looks are remembered.
const maxPolls = 64

// Validate returns what is wrong.
func (s Share) Validate() error {
	if s.K < 1 || s.N < s.K || s.N > maxPolls {
		return fmt.Errorf("%d of %d is not 1 <= k <= n <= %d", s.K, s.N, maxPolls)
	}
	return nil
}

// pollHistory remembers the last looks, the newest in the lowest bit.
type pollHistory uint64

func (p pollHistory) add(yes bool) pollHistory {
	p <<= 1
	if yes {
		p |= 1
	}
	return p
}

// reach reports whether k of the last n polls were positive, the newest among them.
func (p pollHistory) reach(s Share) bool {
	mask := ^uint64(0) >> (maxPolls - s.N)
	return p&1 == 1 && bits.OnesCount64(uint64(p)&mask) >= s.K
}

// Rule is what the operator decided about one check.
type Rule struct {
	Strategy record.Strategy
	// Raise is how often a fault has to be seen before it is reported, Clear how often
	// it has to be missing before its end is.
	Raise, Clear Share
	// For is how long every look has to show it, besides Raise.
	For time.Duration
}

// Policy is what the operator decided.
type Policy struct {
	// Node is the name under which events are reported.
	Node string
	// Rules are those of checks; Otherwise is that of the rest.
	Rules     map[string]Rule
	Otherwise Rule
	// Suppressed holds the codes that are counted and not reported.
	Suppressed map[string]bool
	Table      Table
	Catalogue  xid.Catalogue
	// Settle is for how long each poll has to have recent samples of what shows a fault
	// before the fault can end: DCGM goes by the samples of the last minute.
	Settle time.Duration
	// Remember is how long reported XIDs are remembered; DCGM keeps them for less.
	Remember time.Duration
	// Embedded is true if the host engine runs within the monitor.
	Embedded bool
	// EscalateAfter is after how many failing looks in a row the node is to be
	// restarted; 0 never.
	EscalateAfter int
	// UnbridgedPCIe suppresses NVLinks that are down on PCIe cards without any that
	// is up.
	UnbridgedPCIe bool
}

// DefaultRules are those of checks that differ from the rest, each with its reason.
func DefaultRules(given record.Strategy) (rules map[string]Rule, otherwise Rule) {
	after := Share{3, 3}
	return map[string]Rule{
		// An upgrade of the driver takes the host engine away for minutes.
		Connectivity: {Strategy: given, Raise: after, Clear: after, For: 5 * time.Minute},
		// A hang is a guess about the driver, and its remedy a restart.
		Unresponsive: {Strategy: record.PersistOnly, Raise: Share{2, 2}, Clear: after},
		// A status is one look of the host engine, not a count of samples.
		LostGPU: {Strategy: given, Raise: Share{2, 2}, Clear: after},
		// The driver throttles by itself; the earlier NVSentinel only stores it too.
		Margin: {Strategy: record.PersistOnly, Raise: Share{2, 3}, Clear: after},
		// The kernel log reports the same XIDs, and syslog-health-monitor acts on them.
		XIDs: {Strategy: record.PersistOnly, Raise: Share{1, 1}, Clear: after},
	}, Rule{Strategy: given, Raise: Share{1, 1}, Clear: after}
}

func (p Policy) rule(check string) Rule {
	if r, ok := p.Rules[check]; ok {
		return r
	}
	return p.Otherwise
}
