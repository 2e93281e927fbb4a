package fault

import (
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Sameness compares two sightings of a machine.
type Sameness int

// Results of Compare.
const (
	// Undecidable: the sightings share no identity; wait.
	Undecidable Sameness = iota
	SameMachine
	AnotherMachine
)

// String names the result.
func (s Sameness) String() string {
	switch s {
	case SameMachine:
		return "SameMachine"
	case AnotherMachine:
		return "AnotherMachine"
	case Undecidable:
	}
	return "Undecidable"
}

// Compare decides by the first identity both sightings have: the provider's
// id, else the system UUID (unless it is one that names no machine), else the
// Node's uid.
func Compare(a, b record.NodeIdentity) Sameness {
	for _, pair := range [][2]string{{a.ProviderID, b.ProviderID}, {systemUUID(a), systemUUID(b)}, {a.UID, b.UID}} {
		if pair[0] != "" && pair[1] != "" {
			if pair[0] == pair[1] {
				return SameMachine
			}
			return AnotherMachine
		}
	}
	return Undecidable
}

// Of is the machine a record is about: the one its connector saw, else the one
// of its verdict, else nothing.
func Of(r record.Record) record.NodeIdentity {
	if v := r.Status.QuarantineVerdict; Machine(r.Node) == "" && v != nil && v.Machine != nil {
		return *v.Machine
	}
	return r.Node
}

// Machine is one string for a machine: provider id, else system UUID, else uid.
func Machine(n record.NodeIdentity) string {
	switch {
	case n.ProviderID != "":
		return n.ProviderID
	case systemUUID(n) != "":
		return n.SystemUUID
	}
	return n.UID
}

// factory are the system UUIDs of boards whose maker set none, in lower case.
var factory = []string{
	"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc", "4c4c4544-0000-2010-8020-80c04f202020",
	"not settable", "not present", "not specified", "to be filled by o.e.m.",
}

// systemUUID is a machine's own system UUID, or empty: one of a single repeated
// digit pair, or of the makers' defaults, is that of many machines.
func systemUUID(n record.NodeIdentity) string {
	id := strings.ToLower(strings.TrimSpace(n.SystemUUID))
	digits := strings.ReplaceAll(id, "-", "")
	if slices.Contains(factory, id) || (len(digits) == 32 && strings.Repeat(digits[:2], 16) == digits) {
		return ""
	}
	return n.SystemUUID
}

// Boots is what is known about the boots of one machine.
type Boots struct {
	// Replaced are boots that a repair's outcome names as replaced.
	Replaced map[string]bool
	// Reported are boots the Node reported at verdicts of the present session.
	Reported map[string]bool
	// Current is the boot the Node reports now; empty when unknown.
	Current string
	// proven are records whose publisher order proves later boots, and that show
	// what the Node reported when they were accepted.
	proven []record.Record
}

// BootsOf gathers the proofs from a node's records (any that are known) and
// the Node's present report, which must have been read after the records.
// session restricts verdict sightings.
func BootsOf(records []record.Record, session, current string) Boots {
	b := Boots{Replaced: map[string]bool{}, Reported: map[string]bool{}, Current: current, proven: records}
	for _, r := range records {
		if v := r.Status.QuarantineVerdict; v != nil && v.NodeBootID != "" && session != "" && r.Status.Session == session {
			b.Reported[v.NodeBootID] = true
		}
		if rem := r.Status.Remediation; rem != nil {
			for _, a := range rem.Attempts {
				if a.ReplacedBootID != "" {
					b.Replaced[a.ReplacedBootID] = true
				}
			}
		}
	}
	return b
}

// Past reports whether the boot under which r was observed is proven to be over.
// A mere difference proves nothing.
func (b Boots) Past(r record.Record) bool {
	boot := r.Event.BootID()
	if boot == "" {
		return false
	}
	if b.Replaced[boot] || (b.Reported[boot] && b.Current != "" && b.Current != boot) {
		return true
	}
	if b.superseded(r, r) {
		return true
	}
	for _, k := range b.proven {
		if b.superseded(r, k) {
			return true
		}
		if other := k.Event.BootID(); other != "" && other != boot && Follows(r, k) {
			return true
		}
	}
	return false
}

// superseded reports whether the Node reported the boot of r when k was accepted, for the
// same machine, and reports another one now: boot ids do not come back.
func (b Boots) superseded(r, k record.Record) bool {
	boot := r.Event.BootID()
	return k.Node.BootID == boot && b.Current != "" && b.Current != boot && Compare(Of(k), Of(r)) == SameMachine
}
