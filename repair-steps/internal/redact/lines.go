package redact

import (
	"bytes"
	"regexp"
	"strings"
)

// maxNameLines bounds how many lines behind a name its value is looked for.
const maxNameLines = 4

// expected is what the lines so far announce of those to come.
type expected struct {
	// named is in how many lines the `value:` of a secret's name may still come.
	named int
	// below is how many lines may still be the value of a name that ended its line.
	below int
	// indent is that name's; block means that all that is indented more is the value, and
	// first that no line of it was there yet.
	indent       int
	block, first bool
}

var (
	// prefix is what a journal, syslog or a container runtime writes in front of a line.
	prefix = regexp.MustCompile(`^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ [^\s:]+: ` +
		`|\d{4}-\d\d-\d\dT\S+ (?:std(?:out|err) [FP]\S*|\S+ [^\s:]+:) )`)
	// ending is a name whose value is not on its line; its second group begins a block of
	// YAML or a list.
	ending = regexp.MustCompile(`([\w.-]{1,128})["'\\]*(?: (?:for|of) .{1,96}| is)?\s*[:=]\s*` +
		`((?:[|>]|\\+u003[eE])[+-]?\d?|\[)?\s*$`)
	// valued is where the value of a name begins.
	valued = regexp.MustCompile(`(?i)(?:^|[^\w.-])value["'\\]*\s*[:=]\s*`)
	// item is a value in a line of its own, behind the dash of a list.
	item = regexp.MustCompile(`^(- +)?(.*?)\s*$`)
	// mapping is a line that has a name of its own, or only opens or closes something.
	mapping = regexp.MustCompile(`^[\w./"'-]+\s*:(?:\s|$)|: |[:{[]$|^[]}{#]`)
)

// content is a line behind its prefix, and how far it is indented.
func content(line []byte) (at, indent int) {
	at = len(prefix.Find(line))
	for at+indent < len(line) && (line[at+indent] == ' ' || line[at+indent] == '\t') {
		indent++
	}
	return at + indent, indent
}

// spans are the secrets that a part of a line has because of those before it.
func (e expected) spans(line []byte, in span) (spans []span) {
	if e.named > 0 {
		if m := valued.FindIndex(line[in.from:in.to]); m != nil {
			if s, ok := value(line, in.from+m[1]); ok && !nothing.Match(line[s.from:s.to]) {
				spans = append(spans, s)
			}
		}
	}
	if s, ok := e.under(line[in.from:in.to]); ok && s.to > s.from {
		spans = append(spans, span{in.from + s.from, in.from + s.to})
	}
	return spans
}

// folded are the secrets of a line that is a text of several, with its line feeds
// spelled out, as in JSON.
func folded(line []byte) (spans []span) {
	if !bytes.Contains(line, []byte(`\n`)) {
		return nil
	}
	var e expected
	begin := 0
	for i := 0; i <= len(line); i++ {
		slashes := i
		for i < len(line) && line[i] == '\\' {
			i++
		}
		slashes = i - slashes
		feeds := slashes > 0 && i < len(line) && line[i] == 'n'
		ends := i == len(line) || line[i] == '"' && slashes%2 == 0
		if !feeds && !ends {
			continue
		}
		in := span{begin, i - slashes}
		spans = append(spans, e.spans(line, in)...)
		e = e.after(bytes.TrimSuffix(line[in.from:in.to], []byte(`\r`)))
		if begin = i + 1; ends {
			e = expected{}
		}
	}
	return spans
}

// under is the part of a line that is the value of the name above it. ok is false if it is
// no longer there.
func (e expected) under(line []byte) (s span, ok bool) {
	if e.below == 0 {
		return span{}, false
	}
	at, indent := content(line)
	m := item.FindSubmatchIndex(line[at:])
	s = span{at + m[4], at + m[5]}
	text := line[s.from:s.to]
	switch {
	case len(text) == 0:
		return s, true
	case e.block:
		return span{at, s.to}, indent > e.indent
	case indent <= e.indent && !e.first && m[2] < 0:
		return span{}, false
	case text[0] == '"' || text[0] == '\'':
		v, ok := value(line, s.from)
		return v, ok && len(bytes.Trim(line[v.to:], "\"', \t\r")) == 0
	case bytes.HasPrefix(text, []byte(Mask)):
		return s, true
	}
	alone := indent > e.indent || bytes.IndexByte(text, ' ') < 0
	return s, alone && !mapping.Match(text)
}

// after is what is expected behind a line, without its secrets.
func (e expected) after(line []byte) expected {
	if _, ok := e.under(line); ok {
		e.below, e.first = e.below-1, false
	} else {
		e.below = 0
	}
	of := e.named > 0
	if e.named = max(0, e.named-1); of && valued.Match(line) {
		e.named = 0
	}
	if name := nameAtEnd(line); name != nil {
		e.named = 0
		if namesSecret(name) {
			e.named = maxNameLines
		}
	}
	if !endsOpen(line) {
		return e
	}
	m := ending.FindSubmatch(line[max(0, len(line)-256):])
	if m != nil && (namesSecret(m[1]) || of && bytes.EqualFold(m[1], []byte("value"))) {
		_, indent := content(line)
		e.below, e.indent, e.first = maxKeyLines, indent, true
		e.block = len(m[2]) > 0 && m[2][0] != '['
	}
	return e
}

// nameAtEnd is a name at the end of a line that is itself a value, as that of a
// variable: name: DB_PASSWORD
func nameAtEnd(line []byte) []byte {
	line = bytes.TrimRight(line, "\"'\\, \t\r")
	from := len(line)
	for from > 0 && len(line)-from < 128 && inName(line[from-1]) {
		from--
	}
	name, line := line[from:], bytes.TrimRight(line[:from], "\"'\\ \t")
	if n := len(line); len(name) == 0 || n == 0 || line[n-1] != ':' && line[n-1] != '=' {
		return nil
	}
	line = bytes.TrimRight(line[:len(line)-1], "\"'\\ \t")
	for _, called := range []string{"name", "key"} {
		n := len(line) - len(called)
		if n >= 0 && strings.EqualFold(string(line[n:]), called) && (n == 0 || !inName(line[n-1])) {
			return name
		}
	}
	return nil
}

// endsOpen reports whether a line may end with a name whose value is not on it.
func endsOpen(line []byte) bool {
	line = bytes.TrimRight(line, " \t\r")
	if end := line[max(0, len(line)-9):]; bytes.ContainsAny(end, "|>") || bytes.Contains(end, []byte(`\u003`)) {
		return true
	}
	return len(line) > 0 && bytes.IndexByte([]byte(":=["), line[len(line)-1]) >= 0
}
