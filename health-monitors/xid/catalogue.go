// Package xid describes the XID errors of the NVIDIA driver: how a kernel log line reports
// one, what the vendor's catalogue states about its code, and what we make of it. The
// catalogue is catalogue.csv, for NVLink5 registers nvlink5.csv, both reviewed manually and
// compiled into Go. It does no I/O and reads no clock.
package xid

//go:generate go run ./gen -in catalogue.csv -out catalogue_generated.go
//go:generate go run ./gen -nvlink5 -in nvlink5.csv -out nvlink5_generated.go

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Policy names how a code was evaluated.
type Policy string

// Policies. All but ByBucket are named on the event, so that a reader sees
// that the vendor's bucket alone did not decide.
const (
	// ByBucket: the catalogue's bucket maps to an action of NVSentinel.
	ByBucket Policy = "bucket"
	// UnmappedBucket: the bucket is a workflow for people; CONTACT_SUPPORT.
	UnmappedBucket Policy = "unmapped-bucket"
	// ActionInText: XID 154 carries the number of its action in the line.
	ActionInText Policy = "action-in-text"
	// Undecided: a line of XID 154 without an action that is known.
	Undecided Policy = "undecided"
	// NeedsDecode: the NVLink5 registers decide, and the line carries none.
	NeedsDecode Policy = "needs-decode"
	// Decoded: a row of the NVLink5 table decided.
	Decoded Policy = "decoded"
	// NoMatchingRow: no row of the NVLink5 table fits the registers.
	NoMatchingRow Policy = "no-matching-row"
	// DriverUnknown: the two layouts of the registers disagree, and the driver's
	// version, which chooses, is not known.
	DriverUnknown Policy = "driver-unknown"
	// IgnorableBits: the registers of an XID 74 hold only bits that can be ignored.
	IgnorableBits Policy = "ignorable-bits"
	// RecoveryNotice: the code reports that something works again.
	RecoveryNotice Policy = "recovery-notice"
	// Configured: a row of the operator's own file.
	Configured Policy = "catalogue-file"
	// BlankBucket: the catalogue lists the code without a bucket.
	BlankBucket Policy = "blank-bucket"
	// UnknownCode: the catalogue does not list the code.
	UnknownCode Policy = "unknown-code"
)

// Row is one code of the catalogue.
type Row struct {
	// Code is the XID.
	Code int
	// Bucket is the catalogue's immediate action, empty where it is blank.
	Bucket string
	// Action is that of NVSentinel; empty where the line names it.
	Action record.Action
	// Fatal is true if the code takes the node out of service.
	Fatal bool
	// RebootCures is true if a reboot ends the fault; meaningless unless Fatal.
	RebootCures bool
	// Policy is how the row is evaluated.
	Policy Policy
}

// Catalogue is what is known of codes.
type Catalogue map[int]Row

// Builtin is the vendor's catalogue as it was reviewed.
var Builtin = Catalogue(catalogue)

// With is the catalogue with rows of an operator's own, which decide alone.
func (c Catalogue) With(rows []Row) Catalogue {
	out := maps.Clone(c)
	for _, row := range rows {
		row.Policy = Configured
		out[row.Code] = row
	}
	return out
}

// ResetCodes lists the codes that a reset of their GPU ends, by the catalogue.
func (c Catalogue) ResetCodes() []string {
	var codes []string
	for code, row := range c {
		if row.Action == record.ActionComponentReset {
			codes = append(codes, strconv.Itoa(code))
		}
	}
	slices.Sort(codes)
	return codes
}

// Evaluation is what we make of one reported XID.
type Evaluation struct {
	Action record.Action
	Fatal  bool
	// RebootCures is true if a reboot ends the fault, or if it is not fatal.
	RebootCures bool
	Policy      Policy
}

// Evaluate decides about one reported XID under a driver version (empty: unknown).
// Unknown and blank codes, and registers without a row, are reported but never
// disrupt: what nobody has classified must not reboot a fleet.
func (c Catalogue) Evaluate(f Fault, driver string) Evaluation {
	row, ok := c[f.Code]
	switch {
	case !ok:
		return Evaluation{record.ActionContactSupport, false, true, UnknownCode}
	case row.Policy == ActionInText:
		return evaluateRecoveryAction(f.Text)
	case row.Policy == Configured:
	case f.Code == 74 && onlyIgnorable(f.LinkRegisters):
		return evaluationOf(record.ActionNone, IgnorableBits)
	case row.Policy == NeedsDecode && f.NVLink5 != nil:
		return decode(f.Code, *f.NVLink5, driver)
	}
	return Evaluation{row.Action, row.Fatal, row.RebootCures || !row.Fatal, row.Policy}
}

// ResetCures reports whether a reset of the GPU ends a fault of this evaluation.
func (e Evaluation) ResetCures() bool {
	return e.Action == record.ActionComponentReset || e.Action == record.ActionNone
}

// evaluationOf applies the two rules of an action: it is fatal unless it is NONE, and
// a reboot cures what a reset or a restart would.
func evaluationOf(a record.Action, p Policy) Evaluation {
	return Evaluation{a, a != record.ActionNone, Cures(a), p}
}

// Cures reports whether a reboot cures what the action would.
func Cures(a record.Action) bool {
	switch a {
	case record.ActionNone, record.ActionComponentReset, record.ActionRestartVM, record.ActionRestartBM:
		return true
	default:
		return false
	}
}
