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
	// known are records whose publisher order proves later boots.
	known []record.Record
}

// BootsOf gathers the proofs from a node's records (any that are known) and
// the Node's present report. session restricts verdict sightings.
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
	for _, k := range b.known {
		if other := k.Event.BootID(); other != "" && other != boot && samePublisher(r, k) && k.Seq > r.Seq {
			return true
		}
	}
	return false
}
