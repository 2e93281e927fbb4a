// Package sxid describes the SXID errors of the NVSwitch driver: how a kernel log line reports
// one, what the vendor's guide states about its code, and what we make of it. The catalogue is
// catalogue.csv, reviewed manually and compiled into catalogue_generated.go. It does no I/O
// and reads no clock.
package sxid

//go:generate go run ./gen -in catalogue.csv -out catalogue_generated.go

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// Names of the SXID check on the wire.
const (
	Check = "SysLogsSXIDError"
	// MetadataPolicy names the policy of a code that its class alone did not decide.
	MetadataPolicy = "sxidPolicy"
)

// Class is the part of the vendor's guide in which a code stands.
type Class string

// Classes.
const (
	NonFatal    Class = "non-fatal"
	Fatal       Class = "fatal"
	AlwaysFatal Class = "always-fatal"
	Notable     Class = "notable"
	// Bare and BareFatal are codes whose lines have no word of severity.
	Bare      Class = "bare"
	BareFatal Class = "bare-fatal"
)

// Known reports whether it is one of the classes above.
func (c Class) Known() bool {
	switch c {
	case NonFatal, Fatal, AlwaysFatal, Notable, Bare, BareFatal:
		return true
	}
	return false
}

// Serious reports whether a code of the class can be fatal.
func (c Class) Serious() bool { return c == Fatal || c == AlwaysFatal || c == BareFatal }

// Row is one code of the catalogue.
type Row struct {
	Code   int
	Class  Class
	Action record.Action
	Name   string
}

// Catalogue is what is known of codes.
type Catalogue map[int]Row

// Builtin is the vendor's catalogue as it was reviewed.
var Builtin = Catalogue(catalogue)

// With is the catalogue with rows of an operator's own in place of its own.
func (c Catalogue) With(rows []Row) Catalogue {
	out := maps.Clone(c)
	for _, row := range rows {
		out[row.Code] = row
	}
	return out
}

// Policy names how a code was evaluated.
type Policy string

// Policies. All but ByClass are named on the event.
const (
	// ByClass: line and catalogue agree.
	ByClass Policy = "class"
	// SeverityInLine: the line and the catalogue disagree; the driver's word in
	// the line decides whether it is fatal, and a person what to do.
	SeverityInLine Policy = "severity-in-line"
	// UnknownCode: the catalogue does not list the code; likewise.
	UnknownCode Policy = "unknown-code"
)

// Fault is one SXID as a kernel log line reports it.
type Fault struct {
	// Code is the SXID; 0 when the number does not fit an int32.
	Code int
	// Number is the code as an error code: decimal, without leading zeros.
	Number string
	// Switch is the driver's index of the NVSwitch.
	Switch string
	// PCI is the normalised address of the NVSwitch.
	PCI string
	// Link is the port of the switch; empty when the line names none.
	Link string
	// Fatal is the driver's word about this error.
	Fatal bool
	// Bare means that the line has no such word; the catalogue decides.
	Bare bool
}

// Marker begins every SXID message.
const Marker = "nvidia-nvswitch"

var line = regexp.MustCompile(
	`^nvidia-nvswitch(\d{1,9}): SXid \(PCI:([0-9a-fA-F:.]{1,32})\): (\d{1,32}), (?:(Fatal|Non-fatal|Correctable)(?:, Link (\d{1,9}))?\b|(\w[^\n]*))`)

// Parse reads an SXID from a kernel message; the lines of details that follow
// one give false, as does one without severity whose code is not listed so.
func (c Catalogue) Parse(message string) (Fault, bool) {
	m := line.FindStringSubmatch(message)
	if m == nil {
		return Fault{}, false
	}
	f := Fault{Switch: trim(m[1]), PCI: location.Address(m[2]), Number: trim(m[3]), Fatal: m[4] == "Fatal"}
	if n, err := strconv.ParseInt(f.Number, 10, 32); err == nil {
		f.Code = int(n)
	}
	if f.Bare = m[4] == ""; f.Bare && !c.bare(f.Code, m[6]) {
		return Fault{}, false
	}
	if m[5] != "" {
		f.Link = trim(m[5])
	}
	return f, true
}

// bare reports whether a line without a word of severity reports an error, and is
// none of those with details: "Severity 0 Engine instance 46", "Data {0x1, ...".
func (c Catalogue) bare(code int, text string) bool {
	switch c[code].Class {
	case Bare, BareFatal, Notable:
		return !strings.HasPrefix(text, "Severity ") && !strings.HasPrefix(text, "Data ")
	default:
		return false
	}
}

// trim takes leading zeros off.
func trim(digits string) string {
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	return digits
}

// Evaluation is what we make of one reported SXID.
type Evaluation struct {
	Action record.Action
	Fatal  bool
	// RebootCures is true if a reboot ends the fault, or if it is not fatal.
	RebootCures bool
	Policy      Policy
}

// Evaluate decides about one reported SXID: the line decides whether it is fatal, the
// catalogue what a fatal one asks for.
func (c Catalogue) Evaluate(f Fault) Evaluation {
	row, known := c[f.Code]
	serious := row.Class == Fatal || row.Class == AlwaysFatal
	switch {
	case !known && !f.Fatal:
		return Evaluation{record.ActionNone, false, true, UnknownCode}
	case !known:
		return Evaluation{record.ActionContactSupport, true, false, UnknownCode}
	case f.Bare && row.Class == BareFatal:
		return Evaluation{row.Action, true, false, ByClass}
	case f.Bare:
		return Evaluation{row.Action, false, true, ByClass}
	case f.Fatal && serious:
		return Evaluation{row.Action, true, true, ByClass}
	case f.Fatal:
		return Evaluation{record.ActionContactSupport, true, false, SeverityInLine}
	case row.Class == AlwaysFatal:
		return Evaluation{record.ActionContactSupport, false, true, SeverityInLine}
	}
	// D.5 lists codes that are fatal on some ports only.
	return Evaluation{record.ActionNone, false, true, ByClass}
}

// Names are the entities that name the switch of a fault, whichever its link.
func Names(f Fault) [][2]string { return [][2]string{{"NVSWITCH", f.Switch}, {"PCI", f.PCI}} }

// Event makes the health event of one reported SXID; gpu is what sits at the other end of
// the link, empty where the metadata file does not list it.
func (c Catalogue) Event(f Fault, gpu location.Device, s location.Sighting, message string) *protos.HealthEvent {
	j := c.Evaluate(f)
	e := s.About(Check, gpu, message)
	e.IsFatal = j.Fatal
	e.RecommendedAction = record.ActionNumber(j.Action)
	e.ErrorCode = []string{f.Number}
	e.EntitiesImpacted = location.Entities([2]string{"NVSWITCH", f.Switch}, [2]string{"PCI", f.PCI},
		[2]string{"NVLINK", f.Link}, [2]string{"GPU", gpu.Index}, [2]string{"GPU_UUID", gpu.UUID})
	if j.Policy != ByClass {
		e.Metadata[MetadataPolicy] = string(j.Policy)
	}
	return e
}
