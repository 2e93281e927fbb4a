package redact

import (
	"bytes"
	"regexp"
)

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

// add takes a line that goes on, and says so. To the last part of one it puts the others
// in front.
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

// rest are the lines whose last part did not come, as far as they are.
func (p *parts) rest() (all []long) {
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
