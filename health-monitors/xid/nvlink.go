package xid

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Registers are what a line of XIDs 144 to 150 reports about a fifth-generation NVLink.
type Registers struct {
	// Unit is the part of the link that reports, for example RLW_CTRL.
	Unit string
	// Severity is the driver's word, for example Fatal or Nonfatal.
	Severity string
	// Info and Status are the registers intrInfo and errorStatus.
	Info, Status uint32
}

// link5 reads unit, severity, crossing, injection, link and the first two
// registers: "NETIR_LINK_EVT Fatal XC0 i0 Link 05 (0x004505c6 0x00000000 ...". Of a unit
// and its part ("TLW_RX/TLW_RX_PIPE0") the part is read.
var link5 = regexp.MustCompile(
	`[:,]\s+(?:\w{1,64}/)?(MSE Degraded|\w{1,64})\s+(\w{1,32})\s+\w+\s+\w+\s+Link\s+(-?\d{1,9})\s+\(0x([0-9a-fA-F]{1,8})\s+0x([0-9a-fA-F]{1,8})\b`)

// parseRegisters reads the registers and the link; link -1 is none.
func parseRegisters(text string) (*Registers, string) {
	m := link5.FindStringSubmatch(text)
	if m == nil {
		return nil, anyLink(text)
	}
	r := &Registers{Unit: m[1], Severity: m[2], Info: hex(m[4]), Status: hex(m[5])}
	if strings.HasPrefix(m[3], "-") {
		return r, ""
	}
	return r, number(m[3])
}

// hex reads at most eight hexadecimal digits.
func hex(digits string) uint32 {
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return 0 // the pattern lets nothing else through
	}
	return uint32(n)
}

// pattern matches bits: the bits of mask must be those of value.
type pattern struct{ mask, value uint32 }

func (p pattern) fits(bits uint32) bool { return bits&p.mask == p.value }

// row5 is one row of the NVLink5 table.
type row5 struct {
	code  int
	units []string
	// v1 is the layout of intrInfo before driver R575, v2 the one since.
	v1, v2 pattern
	bucket string
	// status lists the values of errorStatus; empty is any.
	status []uint32
}

// layouts of intrInfo.
const (
	layoutV1 = iota
	layoutV2
)

// firstV2 is the driver branch that changed the layout.
const firstV2 = 575

// find is the first row that fits under a layout.
func find(code int, r Registers, layout int) (row5, bool) {
	for _, row := range nvlink5 {
		p := row.v1
		if layout == layoutV2 {
			p = row.v2
		}
		if row.code == code && slices.Contains(row.units, r.Unit) && p.fits(r.Info) &&
			(len(row.status) == 0 || slices.Contains(row.status, r.Status)) {
			return row, true
		}
	}
	return row5{}, false
}

// decode evaluates registers by the table. Without the driver's version both
// layouts are tried; only an answer on which they don't disagree counts.
func decode(code int, r Registers, driver string) Evaluation {
	old, isOld := find(code, r, layoutV1)
	current, isCurrent := find(code, r, layoutV2)
	switch branch, known := driverBranch(driver); {
	case known && branch < firstV2:
		return byRow(old, isOld, r)
	case known:
		return byRow(current, isCurrent, r)
	case isOld && isCurrent && old.bucket != current.bucket:
		return bySeverity(r, DriverUnknown)
	case isOld:
		return byRow(old, true, r)
	}
	return byRow(current, isCurrent, r)
}

// bySeverity evaluates registers for which no row decides: they are for a person, and the
// driver's own word decides whether they are fatal.
func bySeverity(r Registers, p Policy) Evaluation {
	fatal := r.Severity == "Fatal"
	return Evaluation{record.ActionContactSupport, fatal, !fatal, p}
}

// byRow is the evaluation of a row, if one was found.
func byRow(row row5, found bool, r Registers) Evaluation {
	switch {
	case !found:
		return bySeverity(r, NoMatchingRow)
	case row.bucket == "RESET_GPU":
		return evaluationOf(record.ActionComponentReset, Decoded)
	}
	// IGNORE, and XID_154_EVAL: the XID 154 that follows names the action.
	return evaluationOf(record.ActionNone, Decoded)
}

// driverBranch reads the 575 of "575.51.03".
func driverBranch(version string) (int, bool) {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return n, err == nil && n > 0
}

// link is the NVLink of an XID 74, and its registers when there are seven and
// the parenthesis closes behind them: the end of a cut line is no number.
var link = regexp.MustCompile(`\blink\s+(\d{1,9})\((?:(0x[0-9a-fA-F]+(?:,\s*0x[0-9a-fA-F]+){6})\))?`)

// numbered is an NVLink that a text names in any other way: "Link 11", "link: 3".
var numbered = regexp.MustCompile(`(?i)\b(?:nv)?link[ :#]{1,3}(\d{1,9})\b`)

// anyLink is the first NVLink that a text numbers, empty when there is none.
func anyLink(text string) string {
	if m := numbered.FindStringSubmatch(text); m != nil {
		return number(m[1])
	}
	return ""
}

// parseLink reads the NVLink of an XID 74 ("link 2(0x10000, 0x0, ...)") and its
// registers, nil when one is missing, malformed or wider than 32 bits.
func parseLink(text string) (number string, registers []uint32) {
	m := link.FindStringSubmatch(text)
	if m == nil {
		return anyLink(text), nil
	}
	for word := range strings.SplitSeq(m[2], ",") {
		v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(word), "0x"), 16, 32)
		if err != nil {
			return m[1], nil
		}
		registers = append(registers, uint32(v))
	}
	return m[1], registers
}

// ignorable are the bits of an XID 74's first register that can be ignored by the vendor's
// workflow: 0, 23 and 30.
const ignorable = 1 | 1<<23 | 1<<30

// onlyIgnorable reports whether registers are known and hold nothing but ignorable
// bits, and one of them at least.
func onlyIgnorable(registers []uint32) bool {
	return len(registers) > 0 && registers[0] != 0 && registers[0]&^ignorable == 0 &&
		!slices.ContainsFunc(registers[1:], func(r uint32) bool { return r != 0 })
}

// registerMetadata is how registers travel: 32 binary digits each. They are readings, and
// an entity names what is faulty.
func registerMetadata(registers []uint32) map[string]string {
	out := make(map[string]string, len(registers))
	for i, v := range registers {
		out[record.MetadataRegister+strconv.Itoa(i)] = fmt.Sprintf("%032b", v)
	}
	return out
}
