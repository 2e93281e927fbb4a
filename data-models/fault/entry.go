// Package fault is the state model as pure code: the faults an event names,
// what a recovery clears, the order of events of one publisher, when two
// sightings are one machine, which boots are past, and how actions rank.
package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Entry is one fault an event names: one device or thing, one error code.
type Entry struct {
	// Key is the identity as stored in faults[].key.
	Key string
	// Names are all names of the device ("GPU_UUID:GPU-1", "PCI:0000:3b:00"), each
	// of which is enough to name it, or those of another thing, widest first
	// ("Switch:leaf-1", "Port:7"), which only name it together. Empty means the
	// check as a whole.
	Names []string
	// Sub are the sub-units that narrow the fault ("NVLINK:3").
	Sub []string
	// Code is the error code, or empty.
	Code string
}

// deviceTypes are the entity types that name one GPU, best key first.
var deviceTypes = []string{"GPU_UUID", "PCI", "GPU"}

// subTypes narrow a device.
var subTypes = []string{"GPC", "TPC", "SM", "NVLINK", "NICPort", "GPU_INSTANCE", "COMPUTE_INSTANCE"}

// readings are the registers that monitors of the predecessor list among an XID
// 74's entities. They are no part of a fault's identity: no recovery names them.
var readings = []string{"REG0", "REG1", "REG2", "REG3", "REG4", "REG5", "REG6"}

// maxReadable bounds what of a key is written out, in bytes: longer sub-units,
// and longer names that count together only, are a hash.
const maxReadable = 128

// Entries lists the faults an event names, in a fixed order without
// duplicates. Names of one device are one entry; sub-units narrow it; types that
// are not known name one thing together; an event without entities is one entry
// per code for the check as a whole.
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

// EntriesOf are the entries of a stored record: as many as it has faults, in
// their order. A record that was evaluated when its entities made other entries has
// keys that no entry has now; each stands for the entry that has its thing and
// code, so that what was one fault in several parts is cleared as a whole.
func EntriesOf(r record.Record) []Entry {
	now := Entries(r.Event)
	if len(r.Status.Faults) == 0 {
		return now
	}
	out := make([]Entry, 0, len(r.Status.Faults))
	for i, f := range r.Status.Faults {
		if i < len(now) && now[i].Key == f.Key {
			out = append(out, now[i])
		} else {
			out = append(out, former(f.Key, i, now))
		}
	}
	return out
}

// former is the entry that a key of another shape stands for: that of its thing
// and code, else that of its place.
func former(key string, place int, now []Entry) Entry {
	parts := strings.Split(key, "|")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "%7C", "|")
	}
	if len(parts) == keyParts {
		thing, code := parts[keyThing], parts[keyParts-1]
		for _, e := range now {
			if e.Code == code && (thing == best(e.Names) || slices.Contains(e.Names, thing) || slices.Contains(e.Sub, thing)) {
				return e
			}
		}
	}
	if place < len(now) {
		return now[place]
	}
	return Entry{Key: key, Names: []string{key}} // only the check's recovery names it
}

// Size is how many bytes the names of all entries of an event take, without
// making them: what it costs anyone who works with the entries.
func Size(e record.Event) int64 {
	things, sub := group(e.EntitiesImpacted)
	identity := int64(len(e.Agent) + len(e.ComponentClass) + len(e.CheckName) + len(e.NodeName) + keyParts)
	for _, s := range sub {
		identity += int64(len(s)) + 1
	}
	var names, codes int64
	for _, thing := range things {
		for _, n := range thing {
			names += int64(len(n)) + 1
		}
	}
	for _, c := range e.ErrorCode {
		codes += int64(len(c))
	}
	n, m := int64(max(len(things), 1)), int64(max(len(e.ErrorCode), 1))
	return n*m*identity + names*m + codes*n
}

// Places of a key's parts.
const (
	keyThing = 4
	keyParts = 7
)

// key is agent, class, check, node, thing, sub-units and code, joined by "|".
func key(e record.Event, entry Entry) string {
	parts := [keyParts]string{
		e.Agent, e.ComponentClass, e.CheckName, e.NodeName, thing(entry.Names), readable(strings.Join(entry.Sub, "/")), entry.Code,
	}
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, "|", "%7C")
	}
	return strings.Join(parts[:], "|")
}

// thing is what keys a device or thing.
func thing(names []string) string {
	if len(names) < 2 || isDevice(names) {
		return best(names)
	}
	return readable(strings.Join(names, "/"))
}

// readable is s, or a hash of it if it is long.
func readable(s string) string {
	if len(s) <= maxReadable {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:16])
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

// Rank orders the actions that a machine can be repaired by without a person:
// a higher rank covers the lower ones. Zero means none or a person's work.
func Rank(a record.Action) int {
	switch a {
	case record.ActionComponentReset:
		return 1
	case record.ActionRestartVM, record.ActionRestartBM:
		return 2
	case record.ActionReplaceVM:
		return 3
	default:
		return 0
	}
}

// NeedsHuman reports whether the action is a person's by its kind.
func NeedsHuman(a record.Action) bool {
	return a != record.ActionNone && Rank(a) == 0
}

// CuredByReboot reports whether a reboot undoes the cause of a fault with this action.
func CuredByReboot(a record.Action) bool {
	return Rank(a) == 1 || Rank(a) == 2
}
