package admission

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// raw is a batch of one event with these strings: its message, the value of an
// entity and that of a metadata entry.
func raw(message, entity, metadata string) []byte {
	text := func(b []byte, field protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	nested := func(b []byte, field protowire.Number, m []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
	}
	e := text(nil, 7, message)
	e = protowire.AppendVarint(protowire.AppendTag(e, 5, protowire.VarintType), 1)
	e = nested(e, 10, text(text(nil, 1, "GPU"), 2, entity))
	e = nested(e, 11, text(text(nil, 1, "key"), 2, metadata))
	e = text(e, 4242, "a field of a later version \xff")
	return nested(nil, 2, e)
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		wire     []byte
		repaired bool
		bad      bool
	}{
		"valid":               {wire: raw("m", "e", "v")},
		"a bad message":       {wire: raw("m\xff", "e", "v"), repaired: true},
		"a bad entity":        {wire: raw("m", "e\xff", "v"), repaired: true},
		"a bad metadata":      {wire: raw("m", "e", "v\xff"), repaired: true},
		"all bad":             {wire: raw("m\xff", "e\xff", "v\xff"), repaired: true},
		"mended, but broken":  {wire: append(raw("m\xff", "e", "v"), 0x13), bad: true},
		"cut short":           {wire: raw("m", "e", "v")[:20], bad: true},
		"bad and cut short":   {wire: raw("m\xff", "e", "v")[:20], bad: true},
		"an event of no type": {wire: []byte{0x13}, bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var batch protos.HealthEvents
			repaired, err := Decode(tc.wire, &batch)
			if repaired != tc.repaired || (err != nil) != tc.bad {
				t.Fatalf("mended %v, %v", repaired, err)
			}
			if tc.bad {
				return
			}
			e := batch.GetEvents()[0]
			for _, s := range []struct{ got, want string }{
				{e.GetMessage(), "m"}, {e.GetEntitiesImpacted()[0].GetEntityValue(), "e"}, {e.GetMetadata()["key"], "v"},
			} {
				if s.got != s.want && s.got != s.want+"\uFFFD" {
					t.Errorf("%q, want %q", s.got, s.want)
				}
			}
			if !e.GetIsFatal() || len(e.ProtoReflect().GetUnknown()) == 0 {
				t.Errorf("something got lost: %v", e)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(raw("m\xff", "e", "v"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		var strict, lenient protos.HealthEvents
		repaired, err := Decode(wire, &lenient)
		if proto.Unmarshal(wire, &strict) == nil && withinBounds(&strict) && (err != nil || repaired || !proto.Equal(&strict, &lenient)) {
			t.Errorf("a valid message: mended %v, %v", repaired, err)
		}
	})
}

func withinBounds(batch *protos.HealthEvents) bool {
	for _, e := range batch.GetEvents() {
		if len(e.GetEntitiesImpacted()) > MaxEntities || len(e.GetErrorCode()) > MaxCodes || len(e.GetMetadata()) > MaxMetadata {
			return false
		}
	}
	return len(batch.GetEvents()) < 16
}

// What is left out before decoding is what would be cut after it: the digest of
// an event does not depend on where.
func TestDecodeOmitsTruncatedFields(t *testing.T) {
	p := event(func(p *protos.HealthEvent) {
		for i := range 3 * MaxEntities {
			p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: "GPU", EntityValue: fmt.Sprint(i)})
		}
	})
	wire, err := proto.Marshal(&protos.HealthEvents{Version: 7, Events: []*protos.HealthEvent{event(), p, event()}})
	if err != nil {
		t.Fatal(err)
	}
	var got protos.HealthEvents
	if _, err := Decode(wire, &got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.GetEvents()[1].GetEntitiesImpacted()); n != MaxEntities+1 || got.GetVersion() != 7 || len(got.GetEvents()) != 3 {
		t.Errorf("%d entities are left, version %d, %d events", n, got.GetVersion(), len(got.GetEvents()))
	}
	before, cutsBefore, _ := Normalise(p, node)
	after, cutsAfter, _ := Normalise(got.GetEvents()[1], node)
	if record.Digest(before) != record.Digest(after) || !slices.Equal(cutsBefore, cutsAfter) {
		t.Errorf("cuts %v and %v, digests %s and %s", cutsBefore, cutsAfter, record.Digest(before), record.Digest(after))
	}
}

// TestDecodeBounds: as many as are allowed are decoded, and one more is refused or left out.
func TestDecodeBounds(t *testing.T) {
	codes := func(n int) *protos.HealthEvent {
		return event(func(p *protos.HealthEvent) { p.ErrorCode = slices.Repeat([]string{"79"}, n) })
	}
	metadata := func(n int) *protos.HealthEvent {
		return event(func(p *protos.HealthEvent) {
			p.Metadata = map[string]string{}
			for i := range n {
				p.Metadata[fmt.Sprint(i)] = ""
			}
		})
	}
	for name, tc := range map[string]struct {
		events []*protos.HealthEvent
		codes  int // of the first event; -1 is a refusal
	}{
		"events":                 {slices.Repeat([]*protos.HealthEvent{codes(1)}, MaxEvents), 1},
		"an event too many":      {slices.Repeat([]*protos.HealthEvent{codes(1)}, MaxEvents+1), -1},
		"codes":                  {[]*protos.HealthEvent{codes(MaxCodes)}, MaxCodes},
		"a code too many":        {[]*protos.HealthEvent{codes(MaxCodes + 1)}, MaxCodes + 1}, // which is cut, and named
		"codes to be left out":   {[]*protos.HealthEvent{codes(MaxCodes + 9)}, MaxCodes + 1},
		"metadata":               {[]*protos.HealthEvent{metadata(maxMetadataEntries)}, 1},
		"an entry too many":      {[]*protos.HealthEvent{metadata(maxMetadataEntries + 1)}, -1},
		"elements of the batch":  {slices.Repeat([]*protos.HealthEvent{metadata(maxMetadataEntries - 2)}, MaxElements/maxMetadataEntries), 1},
		"an element of it above": {slices.Repeat([]*protos.HealthEvent{metadata(maxMetadataEntries)}, 1+MaxElements/maxMetadataEntries), -1},
	} {
		wire, err := proto.Marshal(&protos.HealthEvents{Events: tc.events})
		if err != nil {
			t.Fatal(err)
		}
		var got protos.HealthEvents
		var refusal *Refusal
		if _, err = Decode(wire, &got); errors.As(err, &refusal) != (tc.codes < 0) {
			t.Errorf("%s: %v", name, err)
		}
		if tc.codes >= 0 && (err != nil || len(got.GetEvents()[0].GetErrorCode()) != tc.codes) {
			t.Errorf("%s: %d codes, %v", name, len(got.GetEvents()[0].GetErrorCode()), err)
		}
	}
}
