package redact

import (
	"bytes"
	"regexp"
)

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
