package redact

import (
	"bytes"
	"fmt"
	"io"
)

// The lines around a private key.
var (
	keyBegins = []byte("-----BEGIN ")
	keyNamed  = []byte("PRIVATE KEY")
	keyEnds   = []byte("-----END ")
)

// Writer passes on what is written to it, without its secrets and in whole lines.
// It holds one line at most.
type Writer struct {
	to      io.Writer
	line    []byte
	dropped int // bytes of a line that is too long
	inKey   int // lines that may still be of a private key

	// Redactions is how many secrets, and LongLines how many lines, were taken out.
	Redactions, LongLines int
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Write takes any part of a log; a line goes on when it is complete.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			w.hold(p)
			break
		}
		w.hold(p[:end])
		p = p[end+1:]
		if err := w.pass("\n"); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Flush passes on a last line without an end. Of a log that was cut, leave it: half
// of a secret may have no form.
func (w *Writer) Flush() error {
	if len(w.line) == 0 && w.dropped == 0 {
		return nil
	}
	return w.pass("")
}

func (w *Writer) hold(p []byte) {
	if w.dropped > 0 || len(w.line)+len(p) > maxLine {
		w.dropped += len(w.line) + len(p)
		w.line = w.line[:0]
		return
	}
	w.line = append(w.line, p...)
}

// pass writes the line that is held.
func (w *Writer) pass(end string) error {
	clean := w.clean()
	w.line, w.dropped = w.line[:0], 0
	_, err := w.to.Write(append(clean, end...))
	return err
}

func (w *Writer) clean() []byte {
	if w.dropped > 0 {
		w.LongLines++
		return fmt.Appendf(nil, "[a line of %d bytes was left out]", w.dropped)
	}
	line := w.line
	opens := opensKey(line)
	if w.inKey == 0 && !opens {
		clean, n := Line(line)
		w.Redactions += n
		return bytes.Clone(clean)
	}
	if opens {
		w.Redactions++
		w.inKey = maxKeyLines
	}
	w.inKey--
	if closesKey(line) {
		w.inKey = 0
	}
	return []byte(Mask)
}

// opensKey says whether a private key begins in a line, whether or not it ends there.
func opensKey(line []byte) bool {
	_, behind, begins := bytes.Cut(line, keyBegins)
	return begins && bytes.Contains(behind, keyNamed)
}

// closesKey says whether the last thing that a line says of private keys is an end.
func closesKey(line []byte) bool {
	return bytes.LastIndex(line, keyEnds) > bytes.LastIndex(line, keyBegins)
}
