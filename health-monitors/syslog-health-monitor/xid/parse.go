package xid

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sighting"
)

// Fault is one XID as a kernel log line reports it.
type Fault struct {
	// Code is the XID; 0 when the number does not fit an int32.
	Code int
	// Number is the code as an error code: decimal, without leading zeros.
	Number string
	// PCI is the normalised address without function, for example 0000:3b:00.
	PCI string
	// GPC, TPC and SM locate an XID 13; empty when the line names none.
	GPC, TPC, SM string
	// Link is the NVLink of an XID 74 or of XIDs 144 to 150; empty when the line
	// names none.
	Link string
	// LinkRegisters are the seven registers of an XID 74; nil unless the line
	// holds them all.
	LinkRegisters []uint32
	// NVLink5 are the registers of XIDs 144 to 150; nil when the line has none.
	NVLink5 *Registers
	// Text is the message from "NVRM:" on.
	Text string
}

// marker is what every XID line contains; lines without it are not looked at.
const marker = "NVRM: Xid ("

var (
	// head is the address and the code; drivers before R304 left out "PCI:".
	head  = regexp.MustCompile(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:\D|$)`)
	place = regexp.MustCompile(`\(GPC\s+(\d{1,9}),\s*TPC\s+(\d{1,9}),\s*SM\s+(\d{1,9})\)`)
	owner = regexp.MustCompile(`NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]{36})(?:\W|$)`)
)

// Parse reads an XID from a kernel message. Lines that do not report one give
// false.
func Parse(message string) (Fault, bool) {
	at := strings.Index(message, marker)
	if at < 0 {
		return Fault{}, false
	}
	text := message[at:]
	m := head.FindStringSubmatchIndex(text)
	if m == nil {
		return Fault{}, false
	}
	f := Fault{PCI: sighting.Address(text[m[2]:m[3]]), Text: text[m[0]:]}
	f.Code, f.Number = code(text[m[4]:m[5]])
	switch {
	case f.Code == 13:
		if p := place.FindStringSubmatch(f.Text); p != nil {
			f.GPC, f.TPC, f.SM = p[1], p[2], p[3]
		}
	case f.Code == 74:
		f.Link, f.LinkRegisters = parseLink(f.Text)
	case f.Code >= 144 && f.Code <= 150:
		f.NVLink5, f.Link = parseRegisters(f.Text)
	}
	return f, true
}

// ErrorCode is the code on the wire: the number, and the unit that NVLink5
// registers name ("149.NETIR_LINK_EVT").
func (f Fault) ErrorCode() string {
	if f.NVLink5 == nil {
		return f.Number
	}
	return f.Number + "." + f.NVLink5.Unit
}

// ParseOwner reads which GPU sits at a PCI address from the driver's own line
// "NVRM: GPU at PCI:0000:3b:00: GPU-...".
func ParseOwner(message string) (pci, uuid string, ok bool) {
	if !strings.Contains(message, "NVRM: GPU at ") {
		return "", "", false
	}
	m := owner.FindStringSubmatch(message)
	if m == nil {
		return "", "", false
	}
	return sighting.Address(m[1]), m[2], true
}

// code reads a number of any length; one that no catalogue can hold keeps its
// digits (cut at 32) as its name and has code 0.
func code(digits string) (int, string) {
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		digits = "0"
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, digits[:min(len(digits), 32)]
	}
	return int(n), digits
}
