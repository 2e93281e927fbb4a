package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Fields of the body of a frame: a protobuf message that is encoded without generated code.
// A record's id and time of acceptance are in the frame's header. A body that begins with a
// brace is the record's JSON document: what the message cannot carry exactly, and what
// earlier versions wrote. The message gets no further field, which an earlier version would
// pass over: a record with more is a JSON document, which keeps it.
const (
	fieldEvent      protowire.Number = 1 // a HealthEvent
	fieldUID        protowire.Number = 2
	fieldProviderID protowire.Number = 3
	fieldSystemUUID protowire.Number = 4
	fieldBootID     protowire.Number = 5
	fieldSeq        protowire.Number = 6
	fieldSeqEpoch   protowire.Number = 7
)

// deterministic makes equal bytes of equal events, within one version.
var deterministic = proto.MarshalOptions{Deterministic: true}

// encodeRecord is the body of a record's frame and the digest of the event.
// Decoding protobuf takes a tenth of the time of JSON, and every reader decodes
// every record. A digest that another version made differently only means that
// the spool takes a re-sent event once more, which the store recognises.
func encodeRecord(r record.Record, id uuid.UUID) ([]byte, digest, error) {
	if r.ID == id.String() && exact(r) {
		if event, err := deterministic.Marshal(record.ToProto(r.Event)); err == nil {
			b := make([]byte, 0, len(event)+256)
			b = protowire.AppendBytes(protowire.AppendTag(b, fieldEvent, protowire.BytesType), event)
			b = appendText(b, fieldUID, r.Node.UID)
			b = appendText(b, fieldProviderID, r.Node.ProviderID)
			b = appendText(b, fieldSystemUUID, r.Node.SystemUUID)
			b = appendText(b, fieldBootID, r.Node.BootID)
			b = protowire.AppendVarint(protowire.AppendTag(b, fieldSeq, protowire.VarintType), r.Seq)
			sum := sha256.Sum256(event)
			return appendText(b, fieldSeqEpoch, r.SeqEpoch), digest(sum[:len(digest{})]), nil
		}
	}
	b, err := record.AppendJSON(nil, r)
	if err != nil {
		return nil, digest{}, fmt.Errorf("encoding record %s: %w", r.ID, err)
	}
	return b, digestOf(r.Event), nil
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// exact reports whether the message carries the record without any change: it has only what
// the ingest endpoint sets, names that the wire knows, no empty list that is not nil, and
// times as the wire and the header have them.
func exact(r record.Record) bool {
	e := r.Event
	_, action := protos.RecommendedAction_value[string(e.RecommendedAction)]
	_, strategy := protos.ProcessingStrategy_value[string(e.ProcessingStrategy)]
	accepted := r.Revision == 0 && r.Append == 0 && r.Accepted == "" && r.ExpireAt == nil && r.Status.Blank() &&
		r.MinVersion == 0 && !r.HasExtra()
	lists := (e.ErrorCode == nil || len(e.ErrorCode) > 0) && (e.Metadata == nil || len(e.Metadata) > 0) &&
		(e.EntitiesImpacted == nil || len(e.EntitiesImpacted) > 0)
	created := r.CreatedAt.Location() == time.UTC && time.Unix(0, r.CreatedAt.UnixNano()).Equal(r.CreatedAt)
	t := e.GeneratedTimestamp
	return action && strategy && accepted && lists && created &&
		t.Location() == time.UTC && t.Equal(t.Truncate(time.Microsecond))
}

// isJSON reports whether a body is a JSON document, not a message.
func isJSON(body []byte) bool { return body[0] == '{' }

// decodeRecord is the record of an undamaged frame.
func decodeRecord(f frame) (record.Record, error) {
	var r record.Record
	if isJSON(f.body) {
		return record.Decode(f.body)
	}
	r.ID, r.CreatedAt = f.id.String(), f.accepted
	for b := f.body; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return r, protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return r, protowire.ParseError(n)
		}
		if err := decodeField(&r, number, b[:n]); err != nil {
			return r, err
		}
		b = b[n:]
	}
	return r, nil
}

// decodeField takes over one field; one that is not known is passed over.
func decodeField(r *record.Record, number protowire.Number, value []byte) error {
	if number == fieldSeq {
		var n int
		r.Seq, n = protowire.ConsumeVarint(value)
		return protowire.ParseError(min(n, 0))
	}
	content, n := protowire.ConsumeBytes(value)
	if n < 0 && number <= fieldSeqEpoch {
		return protowire.ParseError(n)
	}
	switch number {
	case fieldEvent:
		var event protos.HealthEvent
		if err := proto.Unmarshal(content, &event); err != nil {
			return err
		}
		r.Event = record.FromProto(&event)
	case fieldUID:
		r.Node.UID = string(content)
	case fieldProviderID:
		r.Node.ProviderID = string(content)
	case fieldSystemUUID:
		r.Node.SystemUUID = string(content)
	case fieldBootID:
		r.Node.BootID = string(content)
	case fieldSeqEpoch:
		r.SeqEpoch = string(content)
	default:
	}
	return nil
}

// A frame is what the log holds per record, with its length as a varint
// before it. It carries what finds and proves an entry: a magic number, its
// length, its index and a checksum over everything after it.
//
//	magic 4 | length of body 4 | crc32c 4 | index 8 | id 16 | digest 16 | accepted 8 | body
//
// A tombstone is a frame without body and id: the place of an entry that was
// damaged, so that all later entries keep their index.
const (
	headerLen = 60
	crcFrom   = 12 // the checksum covers the frame from here
)

var (
	magic      = []byte{'N', 'V', 'S', 0xF1}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// digest is the beginning of the content digest of an event: enough to check whether a
// re-sent id brings the same event.
type digest [16]byte

// frame is one decoded entry of the log.
type frame struct {
	index    uint64
	id       uuid.UUID
	digest   digest
	accepted time.Time
	body     []byte
	record   *record.Record // what the body decodes to, if that is known
}

func (f frame) tombstone() bool { return len(f.body) == 0 }

// size is the length of the encoded frame.
func (f frame) size() int { return headerLen + len(f.body) }

// overhead is what an unreleased entry takes beside its bytes on the disk: in
// memory, from the moment the spool is opened, for its place, id and digest. It
// counts against the spool's bound, so that small events cannot fill the memory
// long before the disk.
const overhead = 256

// cost is what the frame takes of the spool's bound, in bytes.
func (f frame) cost() int64 { return int64(f.size()) + overhead }

// append adds the frame to b as it stands in a segment.
func (f frame) append(b []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.body)))
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, f.index)
	b = append(b, f.id[:]...)
	b = append(b, f.digest[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(f.accepted.UnixNano()))
	b = append(b, f.body...)
	binary.BigEndian.PutUint32(b[start+8:], checksum(b[start:]))
	return b
}

func checksum(frame []byte) uint32 {
	// The length is outside of the checksum's range but is proven by it: with
	// another length other bytes are summed.
	return crc32.Checksum(frame[crcFrom:], castagnoli)
}

// decode reads the frame at the beginning of b; ok is false when b does not
// begin with an undamaged one.
func decode(b []byte) (f frame, size int, ok bool) {
	if len(b) < headerLen || !bytes.HasPrefix(b, magic) {
		return frame{}, 0, false
	}
	size = headerLen + int(binary.BigEndian.Uint32(b[4:]))
	if size > len(b) || checksum(b[:size]) != binary.BigEndian.Uint32(b[8:]) {
		return frame{}, 0, false
	}
	f.index = binary.BigEndian.Uint64(b[12:])
	copy(f.id[:], b[20:36])
	copy(f.digest[:], b[36:52])
	f.accepted = time.Unix(0, int64(binary.BigEndian.Uint64(b[52:]))).UTC()
	f.body = b[headerLen:size:size]
	return f, size, true
}
