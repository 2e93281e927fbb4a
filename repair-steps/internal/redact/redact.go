// Package redact takes secrets out of logs, line by line as they stream: tokens,
// passwords, keys and the like, by the forms in which programs log them.
//
// It takes too much rather than too little. What it can't know is a secret that
// nothing names and that has no form of its own.
package redact

import (
	"bytes"
	"cmp"
	"slices"
)

// Mask stands for what was taken out.
const Mask = "[redacted]"

const (
	// maxLine is how many bytes a line has at most; of a longer one only its length
	// is told.
	maxLine = 256 << 10
	// maxFinds and maxSigns are how many secrets of one kind, and signs of one, a line has
	// at most; of one with more nothing is told.
	maxFinds = 64
	maxSigns = 512
	// window is how many bytes behind a sign are looked at. Of a secret that goes on
	// behind it the whole rest of the line is taken out.
	window = 4 << 10
	// maxKeyLines is how long a private key is at most: one of 16,384 bits has 200
	// lines.
	maxKeyLines = 512
)

// span is a part of a line: from its first byte to the one behind its last.
type span struct{ from, to int }

// Line is a line without its secrets, and how many there were. A private key that
// goes on in further lines is for a Writer.
func Line(line []byte) (clean []byte, secrets int) {
	spans, all := find(line)
	if all {
		return []byte(Mask), 1
	}
	return mask(line, spans), len(spans)
}

// Text is a text of one line or several without its secrets.
func Text(text string) string {
	var out bytes.Buffer
	w := NewWriter(&out)
	_, _ = w.Write([]byte(text))
	_ = w.Flush()
	return out.String()
}

// find looks for the secrets of a line, by each rule for itself: what one takes out
// hides nothing from another. all says that they are too many to tell apart.
func find(line []byte) (spans []span, all bool) {
	lower := lowered(line)
	for _, r := range rules {
		found, ok := r.find(line, lower)
		if !ok {
			return nil, true
		}
		spans = append(spans, found...)
	}
	return merge(spans), false
}

// merge orders spans and makes one of those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.from <= out[last].to {
			out[last].to = max(out[last].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// mask writes Mask in place of each span.
func mask(line []byte, spans []span) []byte {
	if len(spans) == 0 {
		return line
	}
	var out []byte
	at := 0
	for _, s := range spans {
		out = append(append(out, line[at:s.from]...), Mask...)
		at = s.to
	}
	return append(out, line[at:]...)
}
