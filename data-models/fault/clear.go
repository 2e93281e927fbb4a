package fault

import (
	"time"
	"unicode"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Metadata of a recovery by hand: who cleared which record.
const (
	MetadataClearedBy = "clearedBy"
	MetadataClears    = "clears"
)

// maxSaid bounds what a person says of a clearing, in bytes.
const maxSaid = 512

// ClearingID is the id of the recovery by which a person clears a record: the
// same for every try, so that it is stored once.
func ClearingID(cleared string) string {
	return record.DerivedID("nvsentinel clearing of " + cleared)
}

// ClearedByHand is the recovery by which a person, given by the name of the
// user, clears a fault: it names all that the fault names, and nothing else. It
// has no place in the publisher's own order, so that it comes after what was
// stored before it.
func ClearedByHand(r record.Record, by, reason string, machine record.NodeIdentity, now time.Time) record.Record {
	e := r.Event
	by = said(by)
	message := "cleared by " + by
	if reason = said(reason); reason != "" {
		message += ": " + reason
	}
	id := ClearingID(r.ID)
	return record.Record{ID: id, CreatedAt: now, Node: machine, Event: record.Event{
		Version: e.Version, ID: id, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
		IsHealthy: true, Message: message, RecommendedAction: record.ActionNone, ErrorCode: e.ErrorCode, EntitiesImpacted: e.EntitiesImpacted,
		Metadata:           map[string]string{MetadataClearedBy: by, MetadataClears: r.ID},
		GeneratedTimestamp: now, ProcessingStrategy: record.Process,
	}}
}

// said is one line of text.
func said(text string) string {
	out := []rune{}
	for _, r := range text {
		if r == '\u2028' || r == '\u2029' || unicode.IsControl(r) || r == unicode.ReplacementChar {
			r = ' '
		}
		if out = append(out, r); len(string(out)) > maxSaid {
			return string(out[:len(out)-1])
		}
	}
	return string(out)
}
