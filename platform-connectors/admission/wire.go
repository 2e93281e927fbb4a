package admission

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth bounds nested messages; a batch has three levels, and one more for
// the entries of a map.
const maxDepth = 8

// Decode reads a message from the wire. Publishers whose library does not check
// may send text that is not UTF-8, which protobuf refuses with the whole
// request; its bad bytes are replaced instead, and mended says so.
func Decode(wire []byte, into proto.Message) (mended bool, err error) {
	err = proto.Unmarshal(wire, into)
	if err == nil {
		return false, nil
	}
	better, changed, mending := mend(wire, into.ProtoReflect().Descriptor(), maxDepth)
	if mending != nil || !changed {
		return false, err
	}
	return true, proto.Unmarshal(better, into)
}

// mend copies a message and makes its texts valid.
func mend(wire []byte, d protoreflect.MessageDescriptor, depth int) (out []byte, changed bool, err error) {
	if depth == 0 {
		return nil, false, fmt.Errorf("message is nested deeper than %d", maxDepth)
	}
	for len(wire) > 0 {
		number, kind, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return nil, false, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, wire[tag:])
		if size < 0 {
			return nil, false, protowire.ParseError(size)
		}
		field, value := d.Fields().ByNumber(number), wire[tag:tag+size]
		if field == nil || kind != protowire.BytesType {
			out = append(out, wire[:tag+size]...)
		} else {
			content, _ := protowire.ConsumeBytes(value)
			better, touched, err := mendField(content, field, depth)
			if err != nil {
				return nil, false, err
			}
			changed = changed || touched
			out = protowire.AppendBytes(append(out, wire[:tag]...), better)
		}
		wire = wire[tag+size:]
	}
	return out, changed, nil
}

func mendField(content []byte, field protoreflect.FieldDescriptor, depth int) (out []byte, changed bool, err error) {
	switch {
	case field.Message() != nil:
		return mend(content, field.Message(), depth-1)
	case field.Kind() == protoreflect.StringKind && !utf8.Valid(content):
		return []byte(strings.ToValidUTF8(string(content), string(utf8.RuneError))), true, nil
	}
	return content, false, nil
}
