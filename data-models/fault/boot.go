package fault

import "github.com/nvidia/nvsentinel/data-models/record"

// Boots is what is known about the boots of one machine.
type Boots struct {
	// Replaced are boots that a repair's outcome names as replaced.
	Replaced map[string]bool
	// Reported are boots the Node reported at verdicts of the present session.
	Reported map[string]bool
	// Current is the boot the Node reports now; empty when unknown.
	Current string
	// known are records whose publisher order proves later boots, and that say
	// what the Node reported when they were accepted.
	known []record.Record
}

// BootsOf gathers the proofs from a node's records (any that are known) and
// the Node's present report, which must have been read after the records.
// session restricts verdict sightings.
func BootsOf(records []record.Record, session, current string) Boots {
	b := Boots{Replaced: map[string]bool{}, Reported: map[string]bool{}, Current: current, known: records}
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

// Past says whether the boot under which r was observed is proven to be over.
// A mere difference proves nothing.
func (b Boots) Past(r record.Record) bool {
	boot := r.Event.BootID()
	if boot == "" {
		return false
	}
	if b.Replaced[boot] || (b.Reported[boot] && b.Current != "" && b.Current != boot) {
		return true
	}
	if b.seen(r, r) {
		return true
	}
	for _, k := range b.known {
		if b.seen(r, k) {
			return true
		}
		if other := k.Event.BootID(); other != "" && other != boot && Follows(r, k) {
			return true
		}
	}
	return false
}

// seen says that the Node reported the boot of r when k was accepted, about the
// same machine, and reports another one now: boot ids do not come back.
func (b Boots) seen(r, k record.Record) bool {
	boot := r.Event.BootID()
	return k.Node.BootID == boot && b.Current != "" && b.Current != boot && Compare(Of(k), Of(r)) == SameMachine
}
