package xid

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// Fault is one XID as a kernel log line reports it.
type Fault struct {
	// Code is the XID; 0 when the number does not fit an int32.
	Code int
	// Number is the code as an error code: decimal, without leading zeros.
	Number string
	// PCI is the normalised address without function, for example 0000:3b:00.
	PCI string
	// GPUInstance and ComputeInstance are those of a partitioned GPU (MIG); empty
	// when the line names none.
	GPUInstance, ComputeInstance string
	// GPC, TPC and SM locate an XID 13; empty when the line names none.
	GPC, TPC, SM string
	// Link is the NVLink of an XID 71, 74, 137 or 144 to 150; empty when the line
	// names none.
	Link string
	// LinkRegisters are the seven registers of an XID 74; nil unless the line
	// holds them all.
	LinkRegisters []uint32
	// NVLink5 are the registers of XIDs 144 to 150; nil when the line has none.
	NVLink5 *Registers
	// Text is the message from "NVRM:" on, up to the next one in the line.
	Text string
}

// Codes that other messages of the driver belong to.
const (
	// OffTheBus is a GPU that fell off the bus.
	OffTheBus = 79
	// GSPTimeout and GSPError are failures of a GPU's GSP.
	GSPTimeout = 119
	GSPError   = 120
)

// marker is what every XID line contains; lines without it are not looked at.
const marker = "NVRM: Xid ("

var (
	// head is the address, with the instances of a partitioned GPU, and the code;
	// drivers before R304 left out "PCI:". It has more characters than the name of a
	// process, with which other messages of the kernel begin (15, TASK_COMM_LEN).
	head = regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F]{1,2})?)(?: GPU-I:(\d{1,9}))?(?: GPU-CI:(\d{1,9}))?\): (0x[0-9a-fA-F]{1,8}\b|\d+(?:[^\dxX]|$))`)
	// torn is a head that another line cut off.
	torn  = regexp.MustCompile(`^NVRM: Xid \([PCI:0-9a-fA-F.]*$`)
	place = regexp.MustCompile(`\(GPC\s+(\d{1,9}),\s*TPC\s+(\d{1,9}),\s*SM\s+(\d{1,9})\)`)
	owner = regexp.MustCompile(`^NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]{36})(?:\W|$)`)
)

// maxPerLine bounds the XIDs of one line: two writers can tear one, no more.
const maxPerLine = 4

// ParseAll reads every XID of a kernel message that begins with one: where lines were
// torn, a second one stands behind the first. In a message that begins otherwise the
// words may be a program's: the driver quotes what its clients call themselves and
// their version.
func ParseAll(message string) []Fault {
	if !strings.HasPrefix(message, marker) {
		return nil
	}
	var out []Fault
	for message != "" && len(out) < maxPerLine {
		text := message[:nextHead(message)]
		message = message[len(text):]
		f, ok := parse(text)
		switch {
		case ok:
			out = append(out, f)
		case len(out) == 0 && !torn.MatchString(text):
			return nil // a process whose name begins like an XID
		}
	}
	return out
}

// nextHead is where the next XID begins behind the first one, or the end. The marker
// alone is none: a process may be called that.
func nextHead(message string) int {
	for at := len(marker); ; {
		next := strings.Index(message[at:], marker)
		if next < 0 {
			return len(message)
		}
		if at += next; head.MatchString(message[at:]) {
			return at
		}
		at += len(marker)
	}
}

// Parse reads the first XID of a kernel message. Lines that do not report one
// give false.
func Parse(message string) (Fault, bool) {
	all := ParseAll(message)
	if len(all) == 0 {
		return Fault{}, false
	}
	return all[0], true
}

// parse reads an XID from a text that begins with the marker and has no other.
func parse(text string) (Fault, bool) {
	m := head.FindStringSubmatch(text)
	if m == nil {
		return Fault{}, false
	}
	f := Fault{PCI: location.Address(m[1]), GPUInstance: number(m[2]), ComputeInstance: number(m[3]), Text: text}
	f.Code, f.Number = code(m[4])
	switch {
	case f.Code == 13:
		if p := place.FindStringSubmatch(f.Text); p != nil {
			f.GPC, f.TPC, f.SM = p[1], p[2], p[3]
		}
	case f.Code == 71, f.Code == 137:
		f.Link = anyLink(f.Text)
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
	if !strings.HasPrefix(message, "NVRM: GPU at ") {
		return "", "", false
	}
	m := owner.FindStringSubmatch(message)
	if m == nil {
		return "", "", false
	}
	return location.Address(m[1]), m[2], true
}

// code reads a number of any length, decimal or hexadecimal with its 0x; one that
// no catalogue can hold keeps its digits (cut at 32) as its name and has code 0.
func code(text string) (int, string) {
	if digits, isHex := strings.CutPrefix(text, "0x"); isHex {
		text = strconv.FormatUint(uint64(hex(digits)), 10)
	}
	text = strings.TrimRightFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	digits := number(text)
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, digits[:min(len(digits), 32)]
	}
	return int(n), digits
}

// number takes leading zeros off; of nothing it makes nothing.
func number(digits string) string {
	if trimmed := strings.TrimLeft(digits, "0"); trimmed != "" || digits == "" {
		return trimmed
	}
	return "0"
}
