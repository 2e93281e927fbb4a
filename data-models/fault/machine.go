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
// it was judged to be about, else nothing.
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
