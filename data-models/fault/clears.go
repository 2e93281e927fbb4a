package fault

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Clears says whether a recovery names the given entry of a fault: the same
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
	// Names that stand for themselves although their types differ do not say
	// which belong together; none of them speaks for a thing of several names.
	mixed := slices.ContainsFunc(things, func(t []string) bool {
		return len(t) == 1 && !isDevice(t) && typeOf(t[0]) != typeOf(things[len(things)-1][0])
	})
	return slices.ContainsFunc(things, func(names []string) bool { return covers(names, entry.Names, mixed) })
}

// covers says whether the names of a recovery's thing stand for the fault's.
func covers(names, fault []string, mixed bool) bool {
	if isDevice(fault) {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(fault, n) })
	}
	if len(names) == len(fault) {
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(fault, n) })
	}
	return !mixed && len(names) < len(fault) && slices.Equal(names, fault[:len(names)])
}

// coversUnits says whether a recovery's sub-units take in those of a fault: it
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

// mentions says, without making names, whether any entity is one of the names;
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
