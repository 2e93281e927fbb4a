package redact

import "bytes"

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

// breaks says whether a value in quotes ends where its closing quote does.
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

// inString says whether a place is within double quotes.
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
