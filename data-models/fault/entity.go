package fault

import (
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// group sorts entities into things (each with all its names) and sub-units.
// An event that gives each device type at most once describes one device, and
// one that gives each other type at most once one other thing. With several of
// a type, a name that repeats a type starts the next one as long as the listing
// is regular, else every name stands for itself.
func group(entities []record.Entity) (things [][]string, sub []string) {
	var devices, others []record.Entity
	for _, x := range entities {
		switch {
		case slices.Contains(readings, x.EntityType):
		case slices.Contains(subTypes, x.EntityType):
			sub = append(sub, name(x))
		case slices.Contains(deviceTypes, x.EntityType):
			devices = append(devices, x)
		default:
			others = append(others, x)
		}
	}
	slices.Sort(sub)
	return append(split(devices), split(others)...), slices.Compact(sub)
}

// IsSubUnit reports whether entities of the type narrow a device.
func IsSubUnit(entityType string) bool { return slices.Contains(subTypes, entityType) }

// split cuts a listing into things.
func split(names []record.Entity) [][]string {
	var out [][]string
	var types []string // of the thing being read
	var shape []string // of the first thing
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

func typeOf(name string) string {
	t, _, _ := strings.Cut(name, ":")
	return t
}

// isDevice reports whether the names are those of one device.
func isDevice(names []string) bool {
	return len(names) > 0 && slices.Contains(deviceTypes, typeOf(names[0]))
}
