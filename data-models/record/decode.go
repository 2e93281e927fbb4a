package record

import (
	"maps"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// plain is a record without its own encoding.
type plain Record

// Decode reads a record's document. What it has that this version does not know is
// the Extra of the record, of its event and of its status.
func Decode(doc []byte) (Record, error) {
	var p plain
	x, err := extra.Decode(doc, &p, func(p plain) ([]byte, error) { return appendKnown(nil, Record(p)) })
	if err != nil {
		return Record{}, err //nolint:wrapcheck // the caller says what it was decoding
	}
	r := Record(p)
	r.Event.Extra, r.Status.Extra, r.Extra = x.Take(inEvent), x.Take(inStatus), x.OrNil()
	return r, nil
}

// UnmarshalJSON is Decode.
func (r *Record) UnmarshalJSON(doc []byte) (err error) {
	*r, err = Decode(doc)
	return err
}

// Names of the parts of a document that have an Extra of their own.
const (
	inEvent  = "healthevent"
	inStatus = "healtheventstatus"
)

// HasExtra says whether the record has anything that this version does not know.
func (r Record) HasExtra() bool {
	return r.Extra != nil || r.Event.Extra != nil || r.Status.Extra != nil
}

// wholeExtra is the Extra of the whole document; nil is nothing.
func (r Record) wholeExtra() *extra.Extra {
	if !r.HasExtra() {
		return nil
	}
	out := &extra.Extra{In: map[string]*extra.Extra{inEvent: r.Event.Extra, inStatus: r.Status.Extra}}
	if r.Extra != nil {
		out.Fields = r.Extra.Fields
		maps.Copy(out.In, r.Extra.In)
	}
	return out
}
