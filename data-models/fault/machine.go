package fault

import "github.com/nvidia/nvsentinel/data-models/record"

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
// id, else the system UUID, else the Node's uid.
func Compare(a, b record.NodeIdentity) Sameness {
	for _, pair := range [][2]string{{a.ProviderID, b.ProviderID}, {a.SystemUUID, b.SystemUUID}, {a.UID, b.UID}} {
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
	case n.SystemUUID != "":
		return n.SystemUUID
	}
	return n.UID
}
