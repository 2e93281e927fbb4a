package redact

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
)

// Writer passes on what is written to it, without its secrets and in whole lines. It
// holds one line, and of each output of a container one that goes on.
type Writer struct {
	to       io.Writer
	line     []byte
	dropped  int // bytes of a line that is too long
	inKey    int // lines that may still be of a private key
	expected expected
	parts    parts
	learning bool

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
			w.buffer(p)
			break
		}
		w.buffer(p[:end])
		p = p[end+1:]
		if err := w.pass("\n"); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Learn takes a part of a log that is not passed on, for what its lines announce of those
// behind it: a key that began there, a name whose value comes.
func (w *Writer) Learn(p []byte) error {
	secrets, lines := w.Redactions, w.LongLines
	w.learning = true
	_, err := w.Write(p)
	w.learning, w.Redactions, w.LongLines = false, secrets, lines
	return err
}

// Flush passes on a last line without an end, and lines whose rest did not come. Of a
// log that was cut, leave it: half of a secret may have no form.
func (w *Writer) Flush() error {
	if len(w.line) > 0 || w.dropped > 0 {
		end := ""
		if !w.parts.stdout.empty() || !w.parts.stderr.empty() {
			end = "\n"
		}
		if err := w.pass(end); err != nil {
			return err
		}
	}
	for _, p := range w.parts.unfinished() {
		if err := w.emit(p, "\n"); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) buffer(p []byte) {
	if w.dropped > 0 || len(w.line)+len(p) > maxLine {
		w.dropped += len(w.line) + len(p)
		w.line = w.line[:0]
		return
	}
	w.line = append(w.line, p...)
}

// pass writes the line that is held, unless it goes on in another one.
func (w *Writer) pass(end string) error {
	l := long{w.plain(w.line), w.dropped}
	w.line, w.dropped = w.line[:0], 0
	if w.parts.add(&l) {
		return nil
	}
	return w.emit(l, end)
}

// emit writes a line without its secrets.
func (w *Writer) emit(l long, end string) error {
	clean := w.clean(l)
	if w.learning {
		return nil
	}
	_, err := w.to.Write(append(clean, end...))
	return err
}

func (w *Writer) clean(l long) []byte {
	if l.dropped > 0 {
		w.LongLines++
		return fmt.Appendf(nil, "[a line of %d bytes was removed]", l.dropped)
	}
	line := w.plain(l.text) // again: it may be put together of parts
	within := w.inKey > 0
	switch opens := opensKey(line); {
	case opens:
		w.inKey = maxKeyLines - 1
	case within && closesKey(line):
		w.inKey = 0
	case within:
		w.inKey--
	}
	if within {
		line = []byte(Mask)
	}
	line, n := redact(line, w.expected)
	w.Redactions += n
	w.expected = w.expected.after(line)
	return line
}

// plain is a line as a reader sees it.
func (w *Writer) plain(line []byte) []byte {
	line, ok := plain(line)
	if !ok {
		w.Redactions++
		return []byte(Mask)
	}
	return line
}

// long is a line, or how many bytes it had if it was too long.
type long struct {
	text    []byte
	dropped int
}

// parts are lines of containers that go on: the runtime writes a long line in several,
// all but the last with the tag P
// (https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md).
// A secret may be where it was cut.
type parts struct{ stdout, stderr long }

// part is the begin of such a line: its stream and its tag.
var part = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ std(out|err) ([PF])(?::\S+)? `)

// add takes a line that goes on, and reports whether it did. It puts the other parts in
// front of the last one.
func (p *parts) add(l *long) (goesOn bool) {
	m := part.FindSubmatchIndex(l.text)
	if m == nil {
		return false
	}
	held := &p.stdout
	if string(l.text[m[2]:m[3]]) == "err" {
		held = &p.stderr
	}
	last := l.text[m[4]] == 'F'
	if last && held.empty() {
		return false
	}
	held.join(l.text, m[1])
	if !last {
		return true
	}
	*l = held.take()
	return false
}

// unfinished are the lines whose last part did not come, as far as they are.
func (p *parts) unfinished() (all []long) {
	for _, held := range []*long{&p.stdout, &p.stderr} {
		if !held.empty() {
			all = append(all, held.take())
		}
	}
	return all
}

// take is the line that is put together so far, with the tag of one that is whole.
func (l *long) take() long {
	whole := *l
	if *l = (long{}); whole.dropped == 0 {
		whole.text[part.FindSubmatchIndex(whole.text)[4]] = 'F'
	}
	return whole
}

func (l *long) empty() bool { return len(l.text) == 0 && l.dropped == 0 }

// join appends a part, whose text begins behind its tag.
func (l *long) join(part []byte, text int) {
	if l.empty() {
		l.text = bytes.Clone(part)
		return
	}
	if l.dropped > 0 || len(l.text)+len(part)-text > maxLine {
		l.text, l.dropped = nil, l.dropped+len(l.text)+len(part)-text
		return
	}
	l.text = append(l.text, part[text:]...)
}
