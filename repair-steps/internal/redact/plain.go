package redact

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sequence is an escape sequence of ECMA-48 that terminals obey (CSI, character sets), or a
// color or link as logs spell them out: \u001b[31m in JSON, \x1b[31m of C, #033[31m of
// rsyslog, ^[[31m of cat -v.
var sequence = regexp.MustCompile(`^(?:(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b(?:[ -/]+[0-~]|[78=>])` +
	`|` + spelled + `\[[\d;]*[mKHJ]` +
	`|` + spelled + `\][^\\#^]*(?:\\+u0007|\\+x07|\\+a|\\+007|#007|\^G|` + spelled + `\\+))`)

const spelled = `(?:\\+u001[bB]|\\+x1[bB]|\\+033|\\+e|#033|\^\[)`

// stringBegin begins a sequence with a text in it, up to its end: OSC, DCS, SOS, PM, APC.
var (
	stringBegin = regexp.MustCompile(`^(?:\x1b[\]PX^_]|[\x{9d}\x{90}\x{98}\x{9e}\x{9f}])`)
	stringEnds  = "\x07\x1b\u009c\u0090\u0098\u009d\u009e\u009f"
)

// Spaces and invisible characters as JSON and Go spell them out.
var (
	spelledSpace  = regexp.MustCompile(`^\\u(?:00[aA]0|20(?:0[0-9aA]|2[89fF]|5[fF])|3000)`)
	spelledHidden = regexp.MustCompile(`^\\u(?:20(?:0[b-fB-F]|60)|00[aA][dD]|[fF][eE][fF][fF])`)
)

// introducers are begins of all of those.
var introducers = automaton([]string{
	"\x1b", "\u0090", "\u0098", "\u009b", "\u009d", "\u009e", "\u009f", `\u001`, `\x1`, `\033`,
	`\e[`, `\e]`, "#033", "^[[", "^[]",
	`\u00a`, `\u00A`, `\u20`, `\u3000`, `\ufe`, `\uFE`,
})

// plain is a line as a reader sees it: without escape sequences and invisible
// characters, and with plain spaces for those of Unicode. ok is false if there are
// sequences within sequences, deeper than maxRounds.
func plain(line []byte) (out []byte, ok bool) {
	for range maxRounds {
		next := visible(stripped(line))
		if len(next) == len(line) {
			return next, true
		}
		line = next
	}
	return nil, false
}

// stripped is a line without the escape sequences that it has now; what is left may
// make another one.
func stripped(line []byte) []byte {
	found := introducers.FindAllOverlapping(line)
	if len(found) == 0 {
		return line
	}
	out, at := make([]byte, 0, len(line)), 0
	for _, m := range found {
		if m.Start < at {
			continue
		}
		length, space := introduced(line[m.Start:min(len(line), m.Start+window)])
		if length == 0 {
			continue
		}
		out = append(out, line[at:m.Start]...)
		at = m.Start + length
		if line[m.Start] == '\\' { // a backslash that is escaped itself
			out = bytes.TrimRight(out, `\`)
		}
		if space {
			out = append(out, ' ')
		}
	}
	return append(out, line[at:]...)
}

// introduced is how long the sequence is that a text begins with, and whether it spells
// a space.
func introduced(text []byte) (length int, space bool) {
	short := text[:min(len(text), 256)]
	if text[0] != '\\' {
		if n := len(stringBegin.Find(short)); n > 0 {
			return stringEnd(text, n), false
		}
		return len(sequence.Find(short)), false
	}
	if n := len(spelledSpace.Find(short)); n > 0 {
		return n, true
	}
	return max(len(spelledHidden.Find(short)), len(sequence.Find(short))), false
}

// stringEnd is the end of a sequence with a text; 0 if it has none.
func stringEnd(text []byte, begin int) int {
	i := bytes.IndexAny(text[begin:], stringEnds)
	if i < 0 {
		return 0
	}
	end := begin + i
	switch {
	case text[end] == '\a':
		return end + 1
	case bytes.HasPrefix(text[end:], []byte("\u009c")), bytes.HasPrefix(text[end:], []byte("\x1b\\")):
		return end + 2
	}
	return 0
}

// visible has a space for each NUL, no other character that is not seen, and a plain
// space for those of Unicode and for the no-break space of Latin-1. Bytes that are no
// UTF-8 stay.
func visible(line []byte) []byte {
	if !hasSpecial(line) {
		return line
	}
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRune(line[i:])
		switch {
		case r == '\t' || r == '\r':
			out = append(out, byte(r))
		case r == 0 || unicode.IsSpace(r) || r == utf8.RuneError && line[i] == 0xa0:
			out = append(out, ' ')
		case unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r):
		default:
			out = append(out, line[i:i+size]...)
		}
		i += size
	}
	return out
}

func hasSpecial(line []byte) bool {
	for _, b := range line {
		if special[b] {
			return true
		}
	}
	return false
}

// special are the bytes that visible may have to change.
var special = func() (all [256]bool) {
	for b := range all {
		all[b] = b < ' ' && b != '\t' && b != '\r' || b >= 0x7f
	}
	return all
}()

// one is a pattern of a text that is one of some words, with what may stick to it.
func one(words, behind string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:` + strings.Join(strings.Fields(words), "|") + `)` + behind + `*$`)
}

// What follows the name of a secret and is none.
var (
	// nothing: no value, a truth value, a reference, what is masked already, the begin of
	// a block or a list.
	nothing = one(`true false yes no null nil none \[?redacted\]? \*+ x{3,} \[\] \{\} map\[\] \$\{[\w.:-]+\} \$\([\w.:-]+\)
		<(?:nil|none|unset|empty|hidden|redacted|masked|unknown|not\sset|no\svalue)>
		\{\{[^{}]*\}\} [[{] (?:[|>]|\\+u003e)[+-]?\d?(?:\\+[nr])*`, `[,;.)}\]]`)
	// duration and number: of a flag such as --token-ttl, and of tokens that are counted.
	duration = regexp.MustCompile(`^(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h|d))+[,;)}\]]*$`)
	number   = regexp.MustCompile(`^\d{1,9}(?:\.\d+)?[,;)}\]]*$`)
	// proseWords: a sentence about a password.
	proseWords = one(`a an the not never already also being required incorrect invalid wrong expired empty missing set unset
		disabled enabled stored weak blank needed correct valid ok about to too no longer changed reset updated accepted
		rejected denied provided specified found given used generated checked verified`, `[,.:;!)]`)
	// trouble: how the text of an error goes on that names what it is about.
	trouble = one(`post get put pods? node context unauthorized forbidden serviceaccounts? failed failure error could
		couldn't cannot can't not no invalid unable rpc dial timed timeout eof secrets? configmaps? unexpected missing
		expired the this object operation permission access http status net/http x509 tls open stat read lookup resource
		namespaces? request client server file unknown key user`, `[,:;]`)
	// about: a sentence about a flag.
	about = one(`flags? options? is has had was or and must may can will with without requires? needs? from string
		arguments? parameters?`, `[,.:;]`)
	// file of a usual folder.
	file = regexp.MustCompile(`^(?:file:/*)?/(?:etc|var|run|usr|opt|home|root|tmp|dev|proc|sys|srv|mnt|host|certs?|` +
		`secrets?|config|lib|pki)/[\w./@:-]*[,;)}\]]*$`)
	// object of Kubernetes, as logs refer to one: namespace/name.
	object = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}$`)
	// volume of a Secret, as JSON and Go write one.
	volume = regexp.MustCompile(`^(?:&SecretVolumeSource)?\{\\*"?(?:secretName|SecretName|defaultMode)`)
)

// harmless reports whether the value of a name is no secret.
func (k kind) harmless(line []byte, name, s span, by []byte) bool {
	text := line[s.from:s.to]
	switch own := string(line[name.from:name.to]); {
	case nothing.Match(text):
		return true
	case k == word:
		return harmlessWord(own, text, by)
	case k <= phrase:
		return false
	case duration.Match(text), number.Match(text) && own[len(own)-1] == 's':
		return true
	case strings.EqualFold(own, "secret") || strings.EqualFold(own, "secrets"):
		return object.Match(text) || volume.Match(text) || failed(line, s, by)
	default:
		return k == key && file.Match(text) || failed(line, s, by)
	}
}

// failed reports whether a value goes on with an error: "failed to fetch token: pod ...".
func failed(line []byte, s span, by []byte) bool {
	return bytes.HasSuffix(by, []byte(": ")) && line[s.from-1] == ' ' && trouble.Match(line[s.from:s.to])
}

// harmlessWord: pass counts what has passed, and PWD is a shell's folder.
func harmlessWord(name string, text, by []byte) bool {
	switch name {
	case "PWD", "OLDPWD":
		return text[0] == '/'
	case "pass", "Pass":
		return number.Match(text) && len(text) <= 4
	case "PASS":
		return bytes.HasPrefix(by, []byte(":"))
	}
	return false
}
