package nodemark

import (
	"encoding/json"
	"slices"
)

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
