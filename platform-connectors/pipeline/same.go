package pipeline

import (
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// apart is the time between two, whichever is first: a clock may be set back.
func apart(a, b time.Time) time.Duration { return b.Sub(a).Abs() }

// sameBoot reports whether two events may be of one boot.
func sameBoot(a, b record.Event) bool {
	return a.BootID() == "" || b.BootID() == "" || a.BootID() == b.BootID()
}

// keyOf distinguishes faults: all that they name, and the boot.
func keyOf(r record.Record) string {
	k := keys(r.Event)
	slices.Sort(k)
	return strings.Join(append(k, r.Event.BootID()), "\n")
}

// keys are those of an event's entries.
func keys(e record.Event) (out []string) {
	for _, x := range fault.Entries(e) {
		out = append(out, x.Key)
	}
	return out
}

// names are those of the devices that an event's open entries name, each as one
// writes it who does not know how others do.
func names(e record.Event, open []string) (out []string) {
	for _, x := range fault.Entries(e) {
		if !slices.Contains(open, x.Key) {
			continue
		}
		for _, name := range x.Names {
			kind, value, _ := strings.Cut(name, ":")
			switch kind {
			case "PCI":
				out = append(out, "PCI:"+address(value))
			case "GPU", "GPU_UUID":
				out = append(out, kind+":"+strings.ToLower(value))
			}
		}
	}
	return out
}

// address is a PCI address as domain, bus and device: the kernel writes
// "0000:3b:00", drivers "00000000:3B:00.0".
func address(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(s), ".")
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || !strings.Contains(rest, ":") {
		return "0:" + s // without a domain
	}
	if domain = strings.TrimLeft(domain, "0"); domain == "" {
		domain = "0"
	}
	return domain + ":" + rest
}

// sameDevice reports whether two name a device alike.
func sameDevice(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// trimmed is what of a record is needed to end it by a recovery and to compare it.
func trimmed(r record.Record) record.Record {
	e := r.Event
	metadata := map[string]string{}
	for _, key := range record.OrderKeys {
		if v, ok := e.Metadata[key]; ok {
			metadata[key] = v
		}
	}
	r.Event = record.Event{
		ID: e.ID, Agent: e.Agent, ComponentClass: e.ComponentClass, CheckName: e.CheckName, NodeName: e.NodeName,
		ErrorCode: e.ErrorCode, EntitiesImpacted: e.EntitiesImpacted, Metadata: metadata, GeneratedTimestamp: e.GeneratedTimestamp,
	}
	return r
}

// size is what an event takes, about.
func size(e record.Event) int {
	n := 512 + len(e.Message)
	for _, x := range e.EntitiesImpacted {
		n += len(x.EntityType) + len(x.EntityValue) + 48
	}
	for _, c := range e.ErrorCode {
		n += len(c) + 16
	}
	for k, v := range e.Metadata {
		n += len(k) + len(v) + 8
	}
	return n + 3*int(fault.Size(e)) // its keys, twice, and what they are made of
}
