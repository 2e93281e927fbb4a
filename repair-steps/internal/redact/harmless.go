package redact

import (
	"bytes"
	"regexp"
	"strings"
)

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
	// saying: a sentence about a password.
	saying = one(`a an the not never already also being required incorrect invalid wrong expired empty missing set unset
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

// harmless says whether the value of a name is no secret.
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

// failed says whether a value goes on with an error: "failed to fetch token: pod ...".
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
