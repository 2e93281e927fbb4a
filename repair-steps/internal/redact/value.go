package redact

import (
	"bytes"
	"regexp"
)

// value is the value that begins at a place of a line: what is between quotes, or the
// text to the next space. Quotes may be escaped, as in JSON within JSON. A value
// without its closing quote goes on to the end of the line.
func value(line []byte, at int) (span, bool) {
	for at < len(line) && line[at] == ' ' {
		at++
	}
	if at == len(line) {
		return span{}, false
	}
	body := at
	for body < len(line) && line[body] == '\\' {
		body++
	}
	if body < len(line) && (line[body] == '"' || line[body] == '\'') {
		return quoted(line, span{at, body + 1})
	}
	if closer, ok := brackets[line[at]]; ok && !bytes.HasPrefix(line[at:], []byte(Mask)) {
		return bracketed(line, at, closer), true
	}
	s := span{at, wordEnd(line, at)}
	return s, s.to > s.from
}

var brackets = map[byte]byte{'[': ']', '{': '}'}

// bracketed is a list or a mapping, up to the bracket that closes it; one with quotes in
// it, which may have brackets in them, goes on to the last one of the line.
func bracketed(line []byte, at int, closer byte) span {
	depth, opener := 0, line[at]
	for i := at; i < len(line); i++ {
		switch line[i] {
		case opener:
			depth++
		case closer:
			depth--
		case '"', '\'':
			if last := bytes.LastIndexByte(line[i:], closer); last >= 0 {
				return span{at, wordEnd(line, i+last+1)}
			}
			return span{at, len(line)}
		}
		if depth == 0 {
			return span{at, wordEnd(line, i+1)}
		}
	}
	return span{at, at + len(bytes.TrimRight(line[at:], " \t\r"))}
}

// quoted is what is between an opening quote, with its backslashes, and the closing
// one. If text follows that one without a break, as in a shell's 'a'"b", it is a part
// of the value.
func quoted(line []byte, opening span) (span, bool) {
	quote := line[opening.to-1]
	end, ok := closing(line, opening.to, quote, opening.to-1-opening.from)
	if !ok {
		return span{opening.from, len(line)}, opening.to < len(line)
	}
	within := opening.to-opening.from > 1 && end.to < len(line) && line[end.to] == '"' // of a string that ends here too
	if s := (span{opening.to, end.from}); within || breaks(line, end.to, quote) {
		return s, s.to > s.from
	}
	return span{opening.from, wordEnd(line, end.to)}, true
}

// closing is the quote, with its backslashes, that closes one with so many of them. One
// with fewer ends the text around it; one with an odd multiple more is part of the
// value.
func closing(line []byte, at int, quote byte, slashes int) (span, bool) {
	for {
		i := bytes.IndexByte(line[at:], quote)
		if i < 0 {
			return span{}, false
		}
		at += i
		begin := at
		for begin > 0 && line[begin-1] == '\\' {
			begin--
		}
		n := at - begin
		at++
		if n < slashes {
			return span{begin, at}, true
		}
		if more := n - slashes; more%(2*(slashes+1)) == 0 {
			return span{at - 1 - slashes, at}, true
		}
	}
}

// breaks reports whether a value in quotes ends where its closing quote does.
func breaks(line []byte, at int, quote byte) bool {
	if at == len(line) || bytes.IndexByte([]byte(" \t\r,;:&|)]}>\\`"), line[at]) >= 0 {
		return true
	}
	return line[at] == '"' && quote == '\'' && inString(line, at)
}

// wordEnd is the next space, or the quote that ends the string around the word.
func wordEnd(line []byte, at int) int {
	end := bytes.IndexAny(line[at:], " \t\r")
	if end < 0 {
		end = len(line) - at
	}
	word := line[at : at+end]
	for i, b := range word {
		if b == '"' && escapes(word[:i])%2 == 0 {
			if inString(line, at+i) {
				return at + i
			}
			break
		}
	}
	return at + end
}

// inString reports whether a place is within double quotes.
func inString(line []byte, at int) bool {
	in := false
	for i, b := range line[:at] {
		if b == '"' && escapes(line[:i])%2 == 0 {
			in = !in
		}
	}
	return in
}

// escapes counts the backslashes at the end.
func escapes(text []byte) (n int) {
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n
}

// pairs are values whose name is beside them: {name: DB_PASSWORD, value: ...}, as
// Kubernetes writes the variables of a container, in YAML, JSON and as Go prints it.
func pairs() []rule { return []rule{{[]string{"value"}, pair}} }

// valueFrom is the field behind the value of a variable.
var valueFrom = []byte("ValueFrom:")

// called is a name as the value of another one.
const called = `(?:name|key)["'\\]*\s*[:=]\s*["'\\]*([\w.-]{1,128})`

var (
	colon = regexp.MustCompile(`^["'\\]*\s*[:=]\s*`)
	// nameBefore and nameAfter are a name and what is between it and its value.
	nameBefore = regexp.MustCompile(`(?i)(?:^|[^\w.-])` + called + `["'\\]*[,\s]+["'\\]*$`)
	nameAfter  = regexp.MustCompile(`(?i)^["'\\]*[,\s]+["'\\]*` + called)
)

// pair finds the value if a name before or behind it names a secret.
func pair(line, _ []byte, sign span) []span {
	if sign.from > 0 && inName(line[sign.from-1]) {
		return nil
	}
	m := colon.Find(line[sign.to:min(len(line), sign.to+64)])
	if m == nil {
		return nil
	}
	s, ok := value(line, sign.to+len(m))
	if !ok || nothing.Match(line[s.from:s.to]) {
		return nil
	}
	name := nameBefore.FindSubmatch(line[max(0, sign.from-256):sign.from])
	if name == nil {
		name = nameAfter.FindSubmatch(line[s.to:min(len(line), s.to+256)])
	}
	if name == nil || !namesSecret(name[1]) {
		return nil
	}
	if end := bytes.Index(line[s.from:], valueFrom); end > 0 && s.from == sign.to+1 { // as Go prints it, without quotes
		s.to = max(s.to, s.from+end)
	}
	return []span{s}
}

// The lines around a private key: of PEM (RFC 7468), of SSH2 (RFC 4716), of PuTTY.
var (
	keyBegins = [][]byte{[]byte("-----BEGIN "), []byte("---- BEGIN ")}
	keyEnds   = [][]byte{[]byte("-----END "), []byte("---- END ")}
	keyNamed  = []byte("PRIVATE KEY")
	keyLines  = []byte("Private-Lines:")
	keyMAC    = []byte("Private-MAC:")
)

// keys are private keys that begin in a line, up to their end or that of the line. Of
// one in several lines a Writer masks the others.
func keys() []rule {
	return []rule{
		{[]string{"-----begin ", "---- begin "}, func(line, _ []byte, sign span) []span {
			if !bytes.Contains(line[sign.to:min(len(line), sign.to+64)], keyNamed) {
				return nil
			}
			return []span{{sign.from, keyEnd(line, sign.to)}}
		}},
		{[]string{"private-lines:"}, toTextEnd},
	}
}

// keyEnd is behind the dashes of the next end of a key, or the end of the line.
func keyEnd(line []byte, at int) int {
	end, _ := firstOf(line[at:], keyEnds)
	if end < 0 {
		return len(line)
	}
	at += end + len("---- END ")
	dashes := bytes.Index(line[at:], []byte("----"))
	if dashes < 0 {
		return len(line)
	}
	at += dashes
	for at < len(line) && line[at] == '-' {
		at++
	}
	return at
}

func firstOf(line []byte, texts [][]byte) (at, length int) {
	at = -1
	for _, t := range texts {
		if i := bytes.Index(line, t); i >= 0 && (at < 0 || i < at) {
			at, length = i, len(t)
		}
	}
	return at, length
}

func lastOf(line []byte, texts [][]byte) int {
	at := -1
	for _, t := range texts {
		at = max(at, bytes.LastIndex(line, t))
	}
	return at
}

// opensKey reports whether a private key begins in a line and does not end there.
func opensKey(line []byte) bool {
	if _, behind, ok := bytes.Cut(line, keyLines); ok {
		return !bytes.Contains(behind, keyMAC)
	}
	if !bytes.Contains(line, keyNamed) {
		return false
	}
	at := lastOf(line, keyBegins)
	return at >= 0 && bytes.Contains(line[at:], keyNamed) && lastOf(line[at:], keyEnds) < 0
}

// closesKey reports whether the last mark of a private key in a line is an end.
func closesKey(line []byte) bool {
	return bytes.Contains(line, keyMAC) || lastOf(line, keyEnds) > lastOf(line, keyBegins)
}
