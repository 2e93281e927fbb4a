// Package recovery decides when a reboot has cured a check. It is pure: facts, policy and
// time go in, one step and its reason come out.
package recovery

import "time"

// Proof is what two boot ids prove about a reboot.
type Proof string

// Proofs.
const (
	// Unknown: the current boot id cannot be read, which proves nothing.
	Unknown Proof = "Unknown"
	// FirstSight: no boot was remembered, which is no proof of a reboot.
	FirstSight Proof = "FirstSight"
	// SameBoot: the remembered boot still runs.
	SameBoot Proof = "SameBoot"
	// Rebooted: another boot was remembered. This alone is proof.
	Rebooted Proof = "Rebooted"
)

// Prove compares the remembered boot id with the current one; empty is unknown.
func Prove(stored, current string) Proof {
	switch {
	case current == "":
		return Unknown
	case stored == "":
		return FirstSight
	case stored == current:
		return SameBoot
	}
	return Rebooted
}

// View is what is known about one check while its recovery is pending.
type View struct {
	// Pending: a reboot was proven and the check has not been settled since.
	Pending bool
	// OldWaiting: the outbox still holds events of a past boot.
	OldWaiting bool
	// CaughtUp: the new boot's log has been read to its end.
	CaughtUp bool
	// IdleSince is when the log was caught up, or the last code of the check
	// after that.
	IdleSince time.Time
	// Faulted: a fault of the check was seen under the new boot.
	Faulted bool
	// Uncured holds the codes seen before the reboot that no reboot cures.
	Uncured []string
}

// Policy is what the operator decided.
type Policy struct {
	// Settle is how long the check must be quiet under the new boot.
	Settle time.Duration
}

// Step is what to do next about a check.
type Step string

// Steps, in the order of a recovery.
const (
	Nothing       Step = "Nothing"
	DeliverOld    Step = "DeliverOld"
	Settle        Step = "Settle"
	ReportHealthy Step = "ReportHealthy"
	// ReportCured reports by name what the reboot ended, and nothing else.
	ReportCured Step = "ReportCured"
	Withhold    Step = "Withhold"
)

// Reason is why.
type Reason string

// Reasons.
const (
	// NoReboot: no reboot has happened since the check was settled, so no recovery follows. Action: none.
	NoReboot Reason = "NoReboot"
	// OldEventsFirst: health events of an earlier boot are not delivered yet, so the recovery waits for them.
	// Action: none for a few minutes. If it lasts, check the connector of the node.
	OldEventsFirst Reason = "EarlierEventsPending"
	// ReadingLog: the kernel log of the new boot is not read to its end yet, so the recovery waits. Action: none.
	ReadingLog Reason = "ReadingLog"
	// Settling: the check was not free of faults for `settleTime` (2m) under the new boot yet, so the recovery
	// waits. Action: none.
	Settling Reason = "Settling"
	// Settled: the check was free of faults for `settleTime` after the reboot, so the recovery of the whole check
	// is reported. Action: none.
	Settled Reason = "Settled"
	// FaultInstead: the check found a fault under the new boot, so the reboot is followed by no recovery. Action:
	// inspect the device if no further repair follows (`nvsentinel why <node>`).
	FaultInstead Reason = "FaultDetected"
	// NotCured: a reboot does not cure some faults of the check, so only the others are reported as recovered.
	// Action: replace or repair the device. Then run `nvsentinel clear <node> <record>`, unless the monitor has
	// reported that the GPU was replaced.
	NotCured Reason = "NotCured"
)

// Decision is one step, its reason, and how long it may take at least (for
// Settle only).
type Decision struct {
	Step   Step
	Reason Reason
	Wait   time.Duration
}

// Decide gives the next step of a check's recovery.
func Decide(v View, p Policy, now time.Time) Decision {
	switch {
	case !v.Pending:
		return Decision{Step: Nothing, Reason: NoReboot}
	case v.Faulted:
		return Decision{Step: Withhold, Reason: FaultInstead}
	case v.OldWaiting:
		return Decision{Step: DeliverOld, Reason: OldEventsFirst}
	case !v.CaughtUp:
		return Decision{Step: Settle, Reason: ReadingLog, Wait: p.Settle}
	}
	if left := v.IdleSince.Add(p.Settle).Sub(now); left > 0 {
		return Decision{Step: Settle, Reason: Settling, Wait: left}
	}
	if len(v.Uncured) > 0 {
		return Decision{Step: ReportCured, Reason: NotCured}
	}
	return Decision{Step: ReportHealthy, Reason: Settled}
}
