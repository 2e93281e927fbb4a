package admission

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nvidia/nvsentinel/api/protos"
)

// maxDepth bounds nested messages; a batch has three levels, and one more for
// the entries of a map.
const maxDepth = 8

// Bounds of what is decoded at all: an empty entity has two bytes on the wire and
// a hundred in memory.
const (
	// MaxElements bounds entities, codes and metadata entries of one request.
	MaxElements = 65536
	// maxMetadataEntries bounds the metadata entries of one event as given. They have no
	// order on the wire, so nobody could know which of more to keep.
	maxMetadataEntries = 4096
)

// Decode reads a batch from the wire. It counts before it decodes: a batch of
// too many events or elements is a *Refusal, and what an event lists beyond the
// bounds of an event is left out but for one, which Normalise cuts and names.
// Publishers whose library does not check may send text that is not UTF-8, which
// protobuf refuses with the whole request; its bad bytes are replaced instead,
// and mended is then true.
func Decode(wire []byte, into *protos.HealthEvents) (repaired bool, err error) {
	if wire, err = new(counter).batch(wire, into.ProtoReflect().Descriptor().Fields().ByName("events")); err != nil {
		return false, err
	}
	err = proto.Unmarshal(wire, into)
	if err == nil {
		return false, nil
	}
	better, changed := repairUTF8(wire, into.ProtoReflect().Descriptor(), maxDepth)
	if !changed {
		return false, err
	}
	return true, proto.Unmarshal(better, into)
}

// metadataNumber is the number of an event's metadata on the wire.
var metadataNumber = numberOf("metadata")

// most is how many of each list of an event are decoded.
var most = map[protowire.Number]int{
	numberOf("entitiesImpacted"): MaxEntities + 1, numberOf("errorCode"): MaxCodes + 1, metadataNumber: maxMetadataEntries,
}

func numberOf(field protoreflect.Name) protowire.Number {
	return new(protos.HealthEvent).ProtoReflect().Descriptor().Fields().ByName(field).Number()
}

// counter counts what a request would become in memory.
type counter struct{ events, elements int }

// batch returns the batch without what is beyond the bounds of an event.
func (c *counter) batch(wire []byte, d protoreflect.FieldDescriptor) ([]byte, error) {
	return filter(wire, func(number protowire.Number, field []byte) ([]byte, error) {
		_, kind, tag := protowire.ConsumeTag(field)
		if number != d.Number() || kind != protowire.BytesType {
			return field, nil
		}
		if c.events++; c.events > MaxEvents {
			return nil, &Refusal{"events", TooMany, fmt.Sprintf("more than %d events in one batch", MaxEvents)}
		}
		content, _ := protowire.ConsumeBytes(field[tag:])
		lean, err := c.event(content)
		if err != nil || len(lean) == len(content) {
			return field, err
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, number, kind), lean), nil
	})
}

// event returns an event without the elements beyond its bounds.
func (c *counter) event(wire []byte) ([]byte, error) {
	counts := map[protowire.Number]int{}
	return filter(wire, func(number protowire.Number, field []byte) ([]byte, error) {
		bound, bounded := most[number]
		if !bounded {
			return field, nil
		}
		counts[number]++
		switch {
		case counts[number] <= bound:
		case number == metadataNumber:
			return nil, &Refusal{"events", TooMany, fmt.Sprintf("more than %d metadata entries in one event", maxMetadataEntries)}
		default:
			return nil, nil
		}
		if c.elements++; c.elements > MaxElements {
			return nil, &Refusal{"events", TooMany, fmt.Sprintf("more than %d entities, codes and metadata entries in one batch", MaxElements)}
		}
		return field, nil
	})
}

// filter replaces each field of a message by what keep makes of it. What it
// cannot read it leaves to the decoder.
func filter(wire []byte, keep func(number protowire.Number, field []byte) ([]byte, error)) ([]byte, error) {
	var out []byte // nil as long as nothing was replaced
	for at := 0; at < len(wire); {
		number, _, size := protowire.ConsumeField(wire[at:])
		if size < 0 {
			return wire, nil
		}
		field := wire[at : at+size]
		kept, err := keep(number, field)
		if err != nil {
			return nil, err
		}
		if out == nil && len(kept) != len(field) {
			out = append(make([]byte, 0, len(wire)), wire[:at]...)
		}
		if out != nil {
			out = append(out, kept...)
		}
		at += size
	}
	if out == nil {
		return wire, nil
	}
	return out, nil
}

// repairUTF8 copies a message and makes its texts valid. One that it cannot read is not
// changed.
func repairUTF8(wire []byte, d protoreflect.MessageDescriptor, depth int) (out []byte, changed bool) {
	for at := wire; len(at) > 0; {
		number, kind, size := protowire.ConsumeField(at)
		if size < 0 || depth == 0 {
			return wire, false
		}
		if field := d.Fields().ByNumber(number); field == nil || kind != protowire.BytesType {
			out = append(out, at[:size]...)
		} else {
			_, _, tag := protowire.ConsumeTag(at)
			content, _ := protowire.ConsumeBytes(at[tag:size])
			better, touched := repairField(content, field, depth)
			changed = changed || touched
			out = protowire.AppendBytes(append(out, at[:tag]...), better)
		}
		at = at[size:]
	}
	return out, changed
}

func repairField(content []byte, field protoreflect.FieldDescriptor, depth int) (out []byte, changed bool) {
	switch {
	case field.Message() != nil:
		return repairUTF8(content, field.Message(), depth-1)
	case field.Kind() == protoreflect.StringKind && !utf8.Valid(content):
		return []byte(strings.ToValidUTF8(string(content), string(utf8.RuneError))), true
	}
	return content, false
}
