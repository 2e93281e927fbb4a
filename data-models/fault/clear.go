package fault

import (
	"slices"
	"time"
	"unicode"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Metadata of a manual recovery: who cleared which record.
const (
	MetadataClearedBy = "clearedBy"
	MetadataClears    = "clears"
)

// maxReasonBytes bounds the user name and the reason of a manual clearing, each in bytes.
const maxReasonBytes = 512

// ClearingID is the id of the recovery by which a person clears a record: the
// same for every try, so that it is stored once.
func ClearingID(cleared string) string {
	return record.DerivedID("nvsentinel clearing of " + cleared)
}

// ManualClearance is the recovery by which a person, given by the name of the
// user, clears a fault: it names all that the fault names, and nothing else. It
// has no place in the publisher's own order, so that it comes after what was
// stored before it.
func ManualClearance(r record.Record, by, reason string, machine record.NodeIdentity, now time.Time) record.Record {
	e := r.Event
	by = singleLine(by)
	message := "cleared by " + by
	if reason = singleLine(reason); reason != "" {
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

// singleLine is one line of text.
func singleLine(text string) string {
	out := []rune{}
	for _, r := range text {
		if r == '\u2028' || r == '\u2029' || unicode.IsControl(r) || r == unicode.ReplacementChar {
			r = ' '
		}
		if out = append(out, r); len(string(out)) > maxReasonBytes {
			return string(out[:len(out)-1])
		}
	}
	return string(out)
}

// Clears reports whether a recovery names the given entry of a fault: the same
// agent, class, check and node; a listed code or no code; the entry's thing and
// sub-units, or no entity at all. A listed name of a device is enough; of
// another thing all names are needed, or the widest ones, as they were listed.
// Of each type of sub-unit that it lists at all, it lists what the fault does.
// It does not look at order.
func Clears(recovery record.Event, faulty record.Event, entry Entry) bool {
	if !recovery.IsHealthy || recovery.Agent != faulty.Agent || recovery.ComponentClass != faulty.ComponentClass ||
		recovery.CheckName != faulty.CheckName || recovery.NodeName != faulty.NodeName {
		return false
	}
	if len(recovery.ErrorCode) > 0 && !slices.Contains(recovery.ErrorCode, entry.Code) {
		return false
	}
	if len(recovery.EntitiesImpacted) == 0 {
		return true
	}
	if !mentions(recovery.EntitiesImpacted, entry.Names) {
		return false
	}
	things, sub := group(recovery.EntitiesImpacted)
	if !coversUnits(sub, entry.Sub) {
		return false
	}
	if len(things) == 0 {
		return len(entry.Names) == 0 && len(sub) > 0
	}
	// Names that stand for themselves although their types differ do not show
	// which belong together; none of them stands for a thing of several names.
	mixed := slices.ContainsFunc(things, func(t []string) bool {
		return len(t) == 1 && !isDevice(t) && typeOf(t[0]) != typeOf(things[len(things)-1][0])
	})
	return slices.ContainsFunc(things, func(names []string) bool { return covers(names, entry.Names, mixed) })
}

// covers reports whether the names of a recovery's thing stand for the fault's.
func covers(names, fault []string, mixed bool) bool {
	if isDevice(fault) {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(fault, n) })
	}
	if len(names) == len(fault) {
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(fault, n) })
	}
	return !mixed && len(names) < len(fault) && slices.Equal(names, fault[:len(names)])
}

// coversUnits reports whether a recovery's sub-units take in those of a fault: it
// lists none that the fault does not, and of each type that it lists it lists
// all that the fault does.
func coversUnits(units, fault []string) bool {
	if slices.ContainsFunc(units, func(u string) bool { return !slices.Contains(fault, u) }) {
		return false
	}
	types := map[string]bool{}
	for _, u := range units {
		types[typeOf(u)] = true
	}
	return !slices.ContainsFunc(fault, func(u string) bool { return types[typeOf(u)] && !slices.Contains(units, u) })
}

// mentions reports, without making names, whether any entity is one of the names;
// without names, any is.
func mentions(entities []record.Entity, names []string) bool {
	if len(names) == 0 {
		return true
	}
	for _, x := range entities {
		for _, n := range names {
			if len(n) == len(x.EntityType)+1+len(x.EntityValue) && n == name(x) {
				return true
			}
		}
	}
	return false
}
