package kernellog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Entry is one entry of the systemd journal as journalctl --output=json prints
// it (systemd.io/JOURNAL_EXPORT_FORMATS, "Journal JSON Format").
type Entry struct {
	// Cursor names the entry; Position is what can be read from it.
	Cursor   string
	Position Position
	// Machine is the id of the machine that wrote the entry, empty when unknown.
	Machine string
	// Text is the message, valid UTF-8; a program's begins with its tag.
	Text string
	// Kernel is false when a program wrote the entry; Root is true when it did
	// so as root, by the journal's own word.
	Kernel, Root bool
	// Missed is the number of kernel messages that the journal reports as lost.
	Missed int64
	// Short is true when the journal gave the message without its text, because
	// it is too long.
	Short bool
}

// Position is where an entry stands.
type Position struct {
	// File is the id of the journal's numbering and Seq the number within it.
	File string
	Seq  uint64
	// Boot is the boot id, 32 hex digits.
	Boot string
	// Monotonic is the time since boot, Wall the wall time, in microseconds.
	Monotonic, Wall uint64
}

// Time is the wall time of the entry.
func (p Position) Time() time.Time { return time.UnixMicro(int64(p.Wall)).UTC() }

// messageMissed is SD_MESSAGE_JOURNAL_MISSED of sd-messages.h: the journal could
// not read all records of the kernel.
const messageMissed = "e9bf28e6e834481bb6f48f548ad13606"

// MissedMatch selects the entries in which the journal reports lost records.
const MissedMatch = "MESSAGE_ID=" + messageMissed

var errEntry = errors.New("malformed journal entry")

// field is a value of the JSON format: a text, an array of bytes, null where
// journalctl withholds a long value, or an array of these where a field repeats.
type field struct {
	text string
	null bool
}

// UnmarshalJSON reads any of the shapes; of a repeated field the first value.
func (f *field) UnmarshalJSON(data []byte) error {
	*f = field{}
	if len(data) == 0 || data[0] != '[' {
		return f.single(data)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return err
	}
	if len(items) > 0 && (items[0][0] < '0' || items[0][0] > '9') {
		if items[0][0] != '[' {
			return f.single(items[0])
		}
		if err := json.Unmarshal(items[0], &items); err != nil {
			return err
		}
	}
	return f.octets(items)
}

// single reads a text or null.
func (f *field) single(data []byte) error {
	if f.null = bytes.Equal(data, []byte("null")); f.null {
		return nil
	}
	return json.Unmarshal(data, &f.text)
}

// octets reads a value that is not text.
func (f *field) octets(items []json.RawMessage) error {
	raw := make([]byte, 0, len(items))
	for _, item := range items {
		n, err := strconv.ParseUint(string(item), 10, 8)
		if err != nil {
			return fmt.Errorf("%w: a byte value contains %.20q", errEntry, item)
		}
		raw = append(raw, byte(n))
	}
	f.text = string(raw)
	return nil
}

// EntryFields are the fields that ParseEntry reads besides those that
// journalctl always prints.
const EntryFields = "_MACHINE_ID,MESSAGE,MESSAGE_ID,_TRANSPORT,SYSLOG_FACILITY,SYSLOG_IDENTIFIER,_UID"

type entryJSON struct {
	Cursor     field `json:"__CURSOR"`
	Wall       field `json:"__REALTIME_TIMESTAMP"`
	Machine    field `json:"_MACHINE_ID"`
	Message    field `json:"MESSAGE"`
	MessageID  field `json:"MESSAGE_ID"`
	Transport  field `json:"_TRANSPORT"`
	Facility   field `json:"SYSLOG_FACILITY"`
	Identifier field `json:"SYSLOG_IDENTIFIER"`
	UID        field `json:"_UID"`
}

// ParseEntry reads one line of journalctl --output=json. An entry without a
// usable cursor is an error, because reading could not go on behind it.
func ParseEntry(line []byte) (Entry, error) {
	var raw entryJSON
	if err := json.Unmarshal(line, &raw); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	position, err := ParseCursor(raw.Cursor.text)
	if err != nil {
		return Entry{}, err
	}
	if wall, err := strconv.ParseUint(raw.Wall.text, 10, 63); err == nil {
		position.Wall = wall
	}
	kernel := raw.Transport.text == "kernel"
	e := Entry{
		Cursor: raw.Cursor.text, Position: position, Machine: Clean([]byte(raw.Machine.text)), Short: raw.Message.null,
		// What a program wrote into /dev/kmsg comes with another facility.
		Kernel: kernel && (raw.Facility.text == "" || raw.Facility.text == "0"),
		Text:   Clean([]byte(raw.Message.text)),
	}
	if !e.Kernel {
		e.Root = kernel || raw.UID.text == "0"
		if raw.Identifier.text != "" {
			e.Text = Clean([]byte(raw.Identifier.text)) + ": " + e.Text
		}
	}
	if raw.MessageID.text == messageMissed && !kernel && e.Root {
		e.Missed = max(1, missed(raw.Message.text))
	}
	return e, nil
}

// missed reads the number of "Missed 17 kernel messages".
func missed(text string) int64 {
	for word := range strings.FieldsSeq(text) {
		if n, err := strconv.ParseInt(word, 10, 32); err == nil {
			return n
		}
	}
	return 0
}

// cursorBytes bounds a cursor; systemd's has some 150.
const cursorBytes = 512

// ParseCursor reads a cursor of the journal, for example
// "s=<id>;i=1f;b=<boot id>;m=3e8;t=66517289883e8;x=...", all numbers hexadecimal.
func ParseCursor(cursor string) (Position, error) {
	if len(cursor) > cursorBytes {
		return Position{}, fmt.Errorf("%w: the cursor has %d bytes", errEntry, len(cursor))
	}
	var p Position
	for part := range strings.SplitSeq(cursor, ";") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "s":
			p.File = value
		case "b":
			p.Boot = value
		case "i", "m", "t":
			n, err := strconv.ParseUint(value, 16, 63)
			if err != nil {
				return Position{}, fmt.Errorf("%w: cursor %.80q", errEntry, cursor)
			}
			switch key {
			case "i":
				p.Seq = n
			case "m":
				p.Monotonic = n
			default:
				p.Wall = n
			}
		}
	}
	if p.File == "" || p.Seq == 0 || !bootID(p.Boot) {
		return Position{}, fmt.Errorf("%w: cursor %.80q", errEntry, cursor)
	}
	return p, nil
}

func bootID(s string) bool {
	return len(s) == 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}

// JournalBoot writes a boot id as the journal does: 32 hex digits, no dashes.
func JournalBoot(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }

// KernelBoot writes a boot id of the journal as /proc/sys/kernel/random/boot_id
// does.
func KernelBoot(id string) string {
	if !bootID(id) {
		return id
	}
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

// Behind reports whether an entry stands at or before the place that was read
// last: by number within one numbering, by the time since boot within one boot.
// Across both only the wall time is left; an entry of the current boot is never
// behind a place of another one.
func (p Position) Behind(read Position, current string) bool {
	switch {
	case p.File == read.File:
		return p.Seq <= read.Seq
	case p.Boot == read.Boot:
		return p.Monotonic <= read.Monotonic
	case p.Boot == current:
		return false
	case read.Boot == current:
		return true
	}
	return p.Wall <= read.Wall
}
