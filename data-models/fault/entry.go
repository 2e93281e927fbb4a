// Package fault is the state model as pure code: the faults an event names,
// what a recovery clears, the order of events of one publisher, when two
// sightings are one machine, which boots are past, and how actions rank.
package fault

import (
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Entry is one fault an event names: one device or thing, one error code.
type Entry struct {
	// Key is the identity as stored in faults[].key.
	Key string
	// Names are all names of the device or thing ("GPU_UUID:GPU-1", "PCI:0000:3b:00").
	// Empty means the check as a whole.
	Names []string
	// Sub are the sub-units that narrow the fault ("NVLINK:3").
	Sub []string
	// Code is the error code, or empty.
	Code string
}

// deviceTypes are the entity types that name one GPU, best key first.
var deviceTypes = []string{"GPU_UUID", "PCI", "GPU"}

// subTypes narrow a device.
var subTypes = []string{"GPC", "TPC", "SM", "NVLINK"}

// readings are the registers that monitors of the predecessor list among an XID
// 74's entities. They are no part of a fault's identity: no recovery names them.
var readings = []string{"REG0", "REG1", "REG2", "REG3", "REG4", "REG5", "REG6"}

// Entries lists the faults an event names, in a fixed order without
// duplicates. Names of one device are one entry; sub-units narrow it; an event
// without entities is one entry per code for the check as a whole.
func Entries(e record.Event) []Entry {
	devices, sub := group(e.EntitiesImpacted)
	if len(devices) == 0 {
		devices = [][]string{nil}
	}
	codes := e.ErrorCode
	if len(codes) == 0 {
		codes = []string{""}
	}
	var out []Entry
	seen := map[string]bool{}
	for _, names := range devices {
		for _, code := range codes {
			entry := Entry{Names: names, Sub: sub, Code: code}
			entry.Key = key(e, entry)
			if !seen[entry.Key] {
				seen[entry.Key] = true
				out = append(out, entry)
			}
		}
	}
	return out
}

// group sorts entities into things (each with all its names) and sub-units.
// An event that gives each device type at most once describes one device;
// with several of a type, a name that repeats a type starts the next device as
// long as the listing is regular, else every name stands for itself.
func group(entities []record.Entity) (things [][]string, sub []string) {
	var names []record.Entity
	for _, x := range entities {
		switch {
		case slices.Contains(readings, x.EntityType):
		case slices.Contains(subTypes, x.EntityType):
			sub = append(sub, name(x))
		case slices.Contains(deviceTypes, x.EntityType):
			names = append(names, x)
		default:
			things = append(things, []string{name(x)})
		}
	}
	slices.Sort(sub)
	return append(devices(names), things...), slices.Compact(sub)
}

func devices(names []record.Entity) [][]string {
	var out [][]string
	var types []string // of the device being read
	var shape []string // of the first device
	for _, x := range names {
		if slices.Contains(types, x.EntityType) {
			if shape == nil {
				shape = types
			}
			if !slices.Equal(types, shape) {
				return apart(names)
			}
			types = nil
		}
		if types == nil {
			out = append(out, nil)
		}
		types = append(types, x.EntityType)
		out[len(out)-1] = append(out[len(out)-1], name(x))
	}
	if shape != nil && !slices.Equal(types, shape) {
		return apart(names)
	}
	return out
}

func apart(names []record.Entity) [][]string {
	var out [][]string
	for _, x := range names {
		out = append(out, []string{name(x)})
	}
	return out
}

func name(x record.Entity) string {
	value := x.EntityValue
	if x.EntityType == "PCI" {
		value = strings.ToLower(value)
	}
	return x.EntityType + ":" + value
}

// key is agent, class, check, node, thing, sub-units and code, joined by "|".
func key(e record.Event, entry Entry) string {
	parts := []string{e.Agent, e.ComponentClass, e.CheckName, e.NodeName, best(entry.Names), strings.Join(entry.Sub, "/"), entry.Code}
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, "|", "%7C")
	}
	return strings.Join(parts, "|")
}

// best is the name that keys a device: GPU_UUID, else PCI, else GPU.
func best(names []string) string {
	for _, t := range deviceTypes {
		for _, n := range names {
			if strings.HasPrefix(n, t+":") {
				return n
			}
		}
	}
	if len(names) > 0 {
		return names[0]
	}
	return ""
}

// Clears says whether a recovery names the given entry of a fault: the same
// agent, class, check and node; a listed code or no code; a listed name of the
// thing, without a narrower sub-unit, or no entity at all. It does not look at
// order.
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
	things, sub := group(recovery.EntitiesImpacted)
	for _, s := range sub {
		if !slices.Contains(entry.Sub, s) {
			return false
		}
	}
	for _, names := range things {
		for _, n := range names {
			if slices.Contains(entry.Names, n) {
				return true
			}
		}
	}
	return false
}
