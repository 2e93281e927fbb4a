package redact

import (
	"bytes"
	"regexp"
	"slices"
)

// kind is a kind of secret that names name.
type kind int

const (
	// password: chosen by people, of any form.
	password kind = iota
	// phrase is a password of several words.
	phrase
	// word is a name of a password that is also a word of its own: pass, pwd.
	word
	// token: made by programs.
	token
	// key: as a token; its name may also be that of a file.
	key
)

// signsOf are the parts of names that name a secret, in lower case.
var signsOf = map[kind][]string{
	password: {"password", "passwd", "passcode", "passwort", "sshpass", "storepass", "keypass", "userpass"},
	phrase:   {"passphrase"},
	word:     {"pass", "pwd", "psk"},
	token: {
		"token", "secret", "credential", "accesssignature", "sessionid", "sessid", "dockerconfigjson", "dockercfg",
		"connectionstring", "connection_string",
	},
	key: slices.Concat(
		joined([]string{
			"api", "access", "private", "account", "encryption", "decryption", "signing", "master", "license", "security", "ssh",
		}, "", "_", "-", ".", " "),
		joined([]string{
			"shared", "subscription", "function", "functions", "routing", "integration", "service", "hmac", "session",
			"storage", "auth", "client", "deploy", "application", "consumer", "ingestion", "admin", "preshared", "recovery",
			"unseal", "webhook", "certificate",
		}, "", "_", "-", "."),
		[]string{"tls.key", "ca.key", "server.key", "ssl.key"},
	),
}

// joined are the names of keys: apikey, api_key and so on.
func joined(of []string, by ...string) (names []string) {
	for _, o := range of {
		for _, b := range by {
			names = append(names, o+b+"key")
		}
	}
	return names
}

// named are the rules for values that have a name, in the order of the kinds.
func named() (rules []rule) {
	for _, k := range []kind{password, phrase, word, token, key} {
		rules = append(rules, rule{signsOf[k], k.find})
	}
	return rules
}

// harmlessNames are the ends of names of what is about a secret and none itself.
var harmlessNames = regexp.MustCompile(`(?:^iz(?:er|ation).*|^less|` +
	`(?:name|ref|file|path|dir|type|ttl|timeout|seconds|minutes|expiry|expires|expires_?(?:in|at|on)|expiration|` +
	`expirationtime|count|length|size|version|policy|stdin|url|uri|endpoint|cert-?hash|issuer|audience|namespace|` +
	`webhook|provider|config|authentication|auth|status|mode|enabled|limit|usage|quota|budget)s?|` +
	`\.(?:go|cc|cpp|cu|py|rs|java|js|yaml|yml|json|toml|log|sock|service|txt))$`)

// name is the name around a sign. ok is false if it does not name a secret.
func (k kind) name(lower []byte, sign span) (name span, ok bool) {
	name = sign
	for name.from > 0 && sign.from-name.from < 64 && inName(lower[name.from-1]) {
		name.from--
	}
	if name.from < sign.from && escaped(lower, name.from) {
		name.from++
	}
	for name.to < len(lower) && name.to-sign.to < 64 && inName(lower[name.to]) {
		name.to++
	}
	return name, !harmlessNames.Match(lower[sign.to:name.to])
}

// inName reports whether a byte can be in a name.
func inName(b byte) bool {
	return inWord(b) || b == '_' || b == '-' || b == '.'
}

// apart reports whether a sign is a word of its own in its name, as in DB_PASS, dbPass,
// pass.
func apart(line []byte, sign span) bool {
	first, last := line[sign.from], line[sign.to-1]
	before := startsWord(line, sign.from) || !letter(line[sign.from-1]) ||
		lowerCase(line[sign.from-1]) && !lowerCase(first)
	return before && (sign.to == len(line) || !letter(line[sign.to]) || lowerCase(last) && !lowerCase(line[sign.to]))
}

func letter(b byte) bool    { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }
func lowerCase(b byte) bool { return 'a' <= b && b <= 'z' }

func inWord(b byte) bool { return letter(b) || '0' <= b && b <= '9' }

// escaped reports whether a letter is that of an escape: \n, \t, \r.
func escaped(line []byte, at int) bool {
	return at > 0 && line[at-1] == '\\' && bytes.IndexByte([]byte("nrt"), line[at]) >= 0
}

// encoded is the end of a character that a URL or JSON encodes: %3D, \u003d.
var encoded = regexp.MustCompile(`(?:%[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2})$`)

// startsWord reports whether no letter or digit is in front of a place, but for one of an
// escape.
func startsWord(line []byte, at int) bool {
	return at == 0 || !inWord(line[at-1]) || escaped(line, at-1) || encoded.Match(line[max(0, at-6):at])
}

// namesSecret reports whether a name is that of a secret.
func namesSecret(name []byte) bool {
	lower := lowered(name)
	for _, m := range secretNames.automaton.FindAllOverlapping(lower) {
		sign := span{m.Start, m.End}
		for _, r := range secretNames.of[m.PatternID] {
			k := kind(r)
			if _, ok := k.name(lower, sign); ok && (k != word || apart(name, sign)) {
				return true
			}
		}
	}
	return false
}

var secretNames = newFinder(named())

// What may be between a name and its value.
var (
	assigned = regexp.MustCompile(`^["'\\\]()]*(?: (?:for|of) (?:'[^']{1,96}'|\\*"[^"]{1,96}"|[^\s:='"]{1,96}))?\s*` +
		`(?::=|==?(?:>|\\+u003[eE])?|:|%3[aAdD]|\\+u003[dD])\s*`)
	spoken = regexp.MustCompile(`(?i)^["']?\s+(?:(?:for|of)\s+(?:user\s+)?\S{1,64}\s+)?` +
		`(?:(?:is |was |has been )?(?:re)?(?:set|changed) to|is|was)(?:\s*:)?\s+`)
	argument = regexp.MustCompile(`^["'\\]*(?:\s*,)?\s+(?:a\d+=)?`)
	listing  = regexp.MustCompile(`^["'\\]*,`)
	element  = regexp.MustCompile(`^(?:\s[^<>]{0,128})?(?:>|\\+u003[eE])`)
	opening  = regexp.MustCompile(`(?:<|\\u003[cC])[\w.-]*$`)
	literal  = regexp.MustCompile(`^(-?\d[\d.eE+-]*|true|false|null)[,}\]]`)
	spaced   = regexp.MustCompile(`^["']?\s+`)
)

// find is the value of the name around a sign.
func (k kind) find(line, lower []byte, sign span) []span {
	if k == word && !apart(line, sign) {
		return nil
	}
	name, ok := k.name(lower, sign)
	if !ok {
		return nil
	}
	behind := line[name.to:min(len(line), name.to+256)]
	if m := assigned.Find(behind); m != nil {
		return k.take(line, name, name.to+len(m), m)
	}
	if m := spoken.Find(behind); m != nil && k <= phrase {
		if s, ok := value(line, name.to+len(m)); ok && !proseWords.Match(line[s.from:s.to]) {
			return []span{s}
		}
		return nil
	}
	if m := element.Find(behind); m != nil && opening.Match(line[max(0, sign.from-64):sign.from]) {
		return elementText(line, name.to+len(m))
	}
	if lower[name.from] == '-' {
		return k.argument(line, name, behind)
	}
	if m := spaced.Find(behind); m != nil {
		return k.bare(line, name.to+len(m))
	}
	return nil
}

// elementText is that of an element of XML: up to the next one, or to the end of the line.
func elementText(line []byte, at int) []span {
	end := len(line)
	for _, next := range []string{"<", `\u003c`, `\u003C`} {
		if i := bytes.Index(line[at:end], []byte(next)); i >= 0 {
			end = at + i
		}
	}
	if len(bytes.TrimSpace(line[at:end])) == 0 {
		return nil
	}
	return []span{{at, end}}
}

// take is the value that is assigned to a name.
func (k kind) take(line []byte, name span, at int, by []byte) []span {
	s, ok := value(line, at)
	if !ok {
		return nil
	}
	if m := literal.FindSubmatch(line[s.from:s.to]); m != nil && bytes.ContainsAny(by, `"'`) {
		s.to = s.from + len(m[1])
	}
	if k.harmless(line, name, s, by) {
		return nil
	}
	if k == phrase && s.from == at {
		s.to = len(line)
	}
	return []span{s}
}

// argument is the value that follows a flag of a command line, as the next argument.
func (k kind) argument(line []byte, name span, behind []byte) []span {
	m := argument.Find(behind)
	if m == nil {
		m = listing.Find(behind)
	}
	if m == nil {
		return nil
	}
	s, ok := value(line, name.to+len(m))
	option := ok && bytes.HasPrefix(line[s.from:], []byte("--"))
	if !ok || option || about.Match(line[s.from:s.to]) || k.harmless(line, name, s, nil) {
		return nil
	}
	return []span{s}
}

// bare is a value that follows its name after a space alone. Only what can be nothing
// else is one: a string of SQL, letters of both cases with digits, a bootstrap token.
func (k kind) bare(line []byte, at int) []span {
	s, ok := value(line, at)
	if !ok {
		return nil
	}
	if text := line[s.from:s.to]; k <= word && line[at] == '\'' || mixed(text) || bootstrap.Match(text) {
		return []span{s}
	}
	return nil
}

// bootstrap is the form of a token that a node joins a cluster with.
var bootstrap = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// mixed reports whether a text is at least 16 bytes of letters of both cases and digits, as
// what programs make at random.
func mixed(text []byte) bool {
	if end := bytes.IndexAny(text, `\"'`); end >= 0 {
		text = text[:end]
	}
	text = bytes.TrimRight(text, "=,.:;)]}")
	var lower, upper, digit bool
	for _, b := range text {
		if !inName(b) && b != '+' && b != '/' && b != '~' {
			return false
		}
		lower, upper, digit = lower || lowerCase(b), upper || letter(b) && !lowerCase(b), digit || '0' <= b && b <= '9'
	}
	return len(text) >= 16 && lower && upper && digit
}
