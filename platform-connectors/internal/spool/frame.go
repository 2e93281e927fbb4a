package spool

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
)

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

// digest is the beginning of the content digest of an event: enough to tell
// whether a re-sent id brings the same event.
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
