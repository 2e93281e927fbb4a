package nodemark

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of the annotation that lists the active faults: all annotations of an
// object share 256 KiB, and a node that cannot be patched cannot be cordoned.
const (
	maxFaultBytes   = 48 << 10
	maxShownMessage = 512
	maxShownList    = 16
)

// ListedFault is a fault that a Node lists as active.
type ListedFault struct {
	// Event is what is listed of it.
	Event record.Event
	// Complete: all its entities and codes are listed. Otherwise only the id is to be
	// relied on.
	Complete bool
	// Raw is the entry itself.
	Raw json.RawMessage
}

// ListedFaults are the faults that a Node lists as active. Of an entry that cannot be
// read, because a newer version wrote it or somebody broke it, the id counts; without an
// id it is none. An annotation that is no array lists none.
func ListedFaults(node *corev1.Node) (out []ListedFault) {
	for _, raw := range list[json.RawMessage](node.Annotations[QuarantineHealthEvent]) {
		var event protos.HealthEvent
		if err := json.Unmarshal(raw, &event); err != nil {
			// Of an entry of another version's form the id may still be readable.
			var only struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(raw, &only) == nil && only.ID != "" {
				out = append(out, ListedFault{Event: record.Event{ID: only.ID}, Raw: raw})
			}
			continue
		}
		if event.GetId() == "" {
			continue
		}
		out = append(out, ListedFault{
			Event: record.FromProto(&event), Raw: raw,
			Complete: len(event.GetEntitiesImpacted()) < maxShownList && len(event.GetErrorCode()) < maxShownList,
		})
	}
	return out
}

// ListFaults writes the active faults on a Node, in the wire's field names, oldest
// first, each shortened, as many as fit. The store has them whole. Entries that
// only the Node knows go first.
func ListFaults(node *corev1.Node, entries []json.RawMessage, events []record.Event) {
	entries = slices.Clone(entries)
	for _, e := range events {
		b, err := json.Marshal(record.ToProto(shorten(e)))
		if err != nil {
			break
		}
		entries = append(entries, b)
	}
	out := []byte{'['}
	for _, b := range entries {
		if len(out)+len(b)+2 > maxFaultBytes {
			break
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	Annotate(node, QuarantineHealthEvent, string(append(out, ']')))
}

func shorten(e record.Event) record.Event {
	e.Message = e.Message[:min(len(e.Message), maxShownMessage)]
	e.EntitiesImpacted = slices.Clone(e.EntitiesImpacted[:min(len(e.EntitiesImpacted), maxShownList)])
	e.ErrorCode = slices.Clone(e.ErrorCode[:min(len(e.ErrorCode), maxShownList)])
	if len(e.Metadata) > maxShownList {
		all := e.Metadata
		e.Metadata = map[string]string{}
		for _, key := range record.OrderKeys {
			if v, ok := all[key]; ok {
				e.Metadata[key] = v
			}
		}
	}
	return e
}

// DevicesAnnotation of a Pod lists the devices that it was given:
// {"devices":{"nvidia.com/gpu":["GPU-..."]}}. Written by metadata-collector, read
// for partial drains.
const DevicesAnnotation = "dgxc.nvidia.com/devices"

// devices is the content of DevicesAnnotation.
type devices struct {
	Devices map[string][]string `json:"devices"`
}

// Devices reads DevicesAnnotation: the ids of a pod's devices by resource. ok is
// false when it cannot be read, so that nobody knows what the pod holds; a pod
// without the annotation is not known to hold any.
func Devices(annotations map[string]string) (given map[string][]string, ok bool) {
	text, has := annotations[DevicesAnnotation]
	if !has {
		return nil, true
	}
	var d devices
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, false
	}
	return d.Devices, true
}

// EncodeDevices is the content of DevicesAnnotation for the ids of a pod's devices
// by resource, in a fixed order; empty for none.
func EncodeDevices(given map[string][]string) string {
	if len(given) == 0 {
		return ""
	}
	sorted := map[string][]string{}
	for resource, ids := range given {
		sorted[resource] = slices.Compact(slices.Sorted(slices.Values(ids)))
	}
	text, err := json.Marshal(devices{sorted})
	if err != nil {
		return "" // strings always encode
	}
	return string(text)
}
