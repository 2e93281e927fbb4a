package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"unicode/utf8"
)

// headers are those of HTTP that let someone in, and what they have in them.
func headers() []rule {
	return []rule{
		{[]string{"authorization"}, header(authorization)},
		{[]string{"cookie"}, header(cookie)},
		{[]string{"aws4-hmac-sha256"}, toTextEnd},
		{[]string{"bearer"}, bearer},
		{[]string{"basic "}, basic},
		{[]string{"auth"}, auth},
	}
}

var (
	authorization = regexp.MustCompile(`^["'\\\])]*\s*[:=]>?\s*`)
	cookie        = regexp.MustCompile(`^["'\\\])]*\s*:\s*`)
	credentials   = regexp.MustCompile(`^(\\*")?\s*[:=]\s*`)
	bearers       = regexp.MustCompile(`^["'\\]*[\s:=]+`)
	challenge     = regexp.MustCompile(`^(?:realm=|tokens?\b|auth\b)|^[A-Za-z]?[a-z]{1,15}[,.:;)]?$`)
)

// header finds the value of a header: in quotes up to the closing one, else to the end of
// the line or of the string that has the header in it.
func header(colon *regexp.Regexp) func(line, lower []byte, sign span) []span {
	return func(line, _ []byte, sign span) []span {
		m := colon.Find(line[sign.to:min(len(line), sign.to+64)])
		at := sign.to + len(m)
		if m == nil || at == len(line) || line[at] == '{' {
			return nil
		}
		v, ok := value(line, at)
		if !ok || nothing.Match(line[v.from:v.to]) || trouble.Match(line[v.from:v.to]) {
			return nil
		}
		if v.from > at {
			return []span{v}
		}
		return []span{{at, textEnd(line, at)}}
	}
}

// toTextEnd finds a sign and all behind it.
func toTextEnd(line, _ []byte, sign span) []span { return []span{{sign.from, textEnd(line, sign.to)}} }

// textEnd is the end of the line, or of the string that a place is in.
func textEnd(line []byte, at int) int {
	if !inString(line, at) {
		return len(line)
	}
	if end, ok := closing(line, at, '"', 0); ok {
		return end.from
	}
	return len(line)
}

// bearer finds the token behind the word; what a server asks for with it is none.
func bearer(line, _ []byte, sign span) []span {
	m := bearers.Find(line[sign.to:min(len(line), sign.to+64)])
	if m == nil {
		return nil
	}
	s, ok := value(line, sign.to+len(m))
	if !ok || challenge.Match(line[s.from:s.to]) || nothing.Match(line[s.from:s.to]) {
		return nil
	}
	return []span{s}
}

// basic finds a user and password in base64.
func basic(line, _ []byte, sign span) []span {
	if end := loginEnd(line, sign.to); end > sign.to {
		return []span{{sign.to, end}}
	}
	return nil
}

// auth finds the credentials of a registry: "auth": "...", as Docker's configuration has
// them; of other texts, a user and password in base64.
func auth(line, _ []byte, sign span) []span {
	m := credentials.FindSubmatch(line[sign.to:min(len(line), sign.to+64)])
	if m == nil {
		return nil
	}
	at := sign.to + len(m[0])
	begin := at + len(line[at:]) - len(bytes.TrimLeft(line[at:], `\"'`))
	if len(m[1]) == 0 && loginEnd(line, begin) == begin {
		return nil
	}
	s, ok := value(line, at)
	if !ok || line[s.from] == '{' || nothing.Match(line[s.from:s.to]) {
		return nil
	}
	return []span{s}
}

// loginEnd is the end of the base64 of a user and password that begins at a place; the
// place itself if it is something else.
func loginEnd(line []byte, at int) int {
	end := at
	for end < len(line) && end-at < window && (inWord(line[end]) || line[end] == '+' || line[end] == '/') {
		end++
	}
	text, err := base64.RawStdEncoding.DecodeString(string(line[at:end]))
	if err != nil || !utf8.Valid(text) || !bytes.Contains(text, []byte(":")) {
		return at
	}
	return end
}
