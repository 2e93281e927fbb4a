// Package kernellog reads the two shapes in which a kernel log reaches us: the
// records of /dev/kmsg and the entries of the systemd journal. It does no I/O; foreign
// bytes of any kind are text in the end.
package kernellog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Record is one record of /dev/kmsg, as Documentation/ABI/testing/dev-kmsg of
// Linux describes it: "prio,seq,usec,flags[,...];text", then continuation lines.
type Record struct {
	// Facility is 0 for the kernel itself; user space cannot write records of
	// facility 0.
	Facility int
	// Level is the syslog severity, 0 to 7.
	Level int
	// Seq counts the records of one boot.
	Seq uint64
	// Usec is the time since boot in microseconds.
	Usec uint64
	// Text is the message, unescaped, valid UTF-8.
	Text string
}

var errRecord = errors.New("malformed kmsg record")

// ParseRecord reads one record. Continuation lines (key=value pairs about the
// device) are not part of the text.
func ParseRecord(raw []byte) (Record, error) {
	prefix, rest, ok := bytes.Cut(raw, []byte{';'})
	if !ok {
		return Record{}, fmt.Errorf("%w: no semicolon", errRecord)
	}
	fields := strings.Split(string(prefix), ",")
	if len(fields) < 3 {
		return Record{}, fmt.Errorf("%w: %d fields", errRecord, len(fields))
	}
	var n [3]uint64
	for i := range n {
		v, err := strconv.ParseUint(fields[i], 10, 63)
		if err != nil {
			return Record{}, fmt.Errorf("%w: field %d", errRecord, i)
		}
		n[i] = v
	}
	text, _, _ := bytes.Cut(rest, []byte{'\n'})
	return Record{
		Facility: int(n[0] >> 3), Level: int(n[0] & 7), Seq: n[1], Usec: n[2], Text: Clean(unescape(text)),
	}, nil
}

// unescape undoes the kernel's \xNN for bytes that are not printable.
func unescape(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\x`)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if v, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// Clean makes any bytes text that the wire can carry, without colours.
func Clean(raw []byte) string {
	if bytes.IndexByte(raw, '\x1b') >= 0 {
		raw = colour.ReplaceAll(raw, nil)
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// colour is a control sequence of a terminal, as dmesg --color writes them.
var colour = regexp.MustCompile(`\x1b\[[0-9;]{0,16}[A-Za-z]`)

// Cut shortens text to at most limit bytes without splitting a character.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// ResetTag is the tag under which the GPU reset tool logs its outcome.
const ResetTag = "nvsentinel-gpu-reset"

// withoutColon begins a message of the open GPU driver's releases 515 to 530, which wrote
// "NVRM function: " where all others write "NVRM: function: ".
var withoutColon = regexp.MustCompile(`^NVRM (?:GPU\d{1,3} )?\w+: `)

// Colon writes the beginning of a message of the GPU driver as all of its releases but
// some do, with a colon.
func Colon(message string) string {
	if withoutColon.MatchString(message) {
		return "NVRM: " + strings.TrimPrefix(message, "NVRM ")
	}
	return message
}

// Tag is the program that a line names before at: the first word that ends in a
// colon, without its process id; empty when there is none.
func Tag(line string, at int) string {
	for word := range strings.FieldsSeq(line[:max(0, min(at, len(line)))]) {
		if name, is := strings.CutSuffix(word, ":"); is {
			name, _, _ = strings.Cut(name, "[")
			return name
		}
	}
	return ""
}
