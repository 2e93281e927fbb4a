package marks

import (
	"encoding/json"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of the annotation that shows the active faults: all annotations of an
// object share 256 KiB, and a node that cannot be patched cannot be cordoned.
const (
	maxFaultBytes   = 48 << 10
	maxShownMessage = 512
	maxShownList    = 16
)

// faultsJSON is the JSON array of active faults, in the wire's field names,
// oldest first, each shortened, as many as fit. The store has them whole.
// What only the Node knows goes first.
func faultsJSON(lost []json.RawMessage, events []record.Event) string {
	out := []byte{'['}
	for _, e := range events {
		b, err := json.Marshal(record.ToProto(shorten(e)))
		if err != nil {
			break
		}
		lost = append(lost, b)
	}
	for _, b := range lost {
		if len(out)+len(b)+2 > maxFaultBytes {
			break
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	return string(append(out, ']'))
}

func shorten(e record.Event) record.Event {
	e.Message = cut(e.Message, maxShownMessage)
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
