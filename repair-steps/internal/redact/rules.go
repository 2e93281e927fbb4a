package redact

import (
	"bytes"
	"regexp"
)

// rule is one form in which secrets are logged.
type rule struct {
	// hints are texts of which a line of this form has one, in lower case: looking
	// for them costs little.
	hints []string
	// form of the secret, which is its first group, else all of it.
	form *regexp.Regexp
}

const (
	// names of values that are secrets, as the end or the middle of a name.
	names = `pass(?:word|wd|phrase)|pwd|token|secret|api[_.-]?key|access[_.-]?key|private[_.-]?key|account[_.-]?key|credentials?`
	// value is what follows a name: in quotes, up to the quote and what sticks to it;
	// in quotes that are escaped, to the end of the line; else to the next blank.
	value = `("(?:\\.|[^"\\])*"?[^\s,}\]]*|'(?:\\.|[^'\\])*'?[^\s,}\]]*|\\.*|[^\s"'\\]\S*)`
)

// nameHints are a part of each of names.
var nameHints = []string{"pass", "pwd", "token", "secret", "key", "credential"}

var rules = []rule{
	// password=..., "token": "...", AWS_SECRET_ACCESS_KEY: ...
	{nameHints, regexp.MustCompile(`(?is)(?:` + names + `)[\w.-]{0,32}["'\\]*\s*[:=]>?\s*` + value)},
	// --password ..., -token ...
	{nameHints, regexp.MustCompile(`(?is)-[\w.-]*(?:` + names + `)[\w.-]{0,32}\s+` + value)},
	// "auth": "...", as registries' credentials have it.
	{[]string{"auth"}, regexp.MustCompile(`(?is)"auth\\*"\s*:\s*` + value)},
	// Authorization: Basic ..., to the end of the line.
	{[]string{"authorization"}, regexp.MustCompile(`(?is)authorization["'\\]*\s*[:=]>?\s*(.+)`)},
	{[]string{"bearer"}, regexp.MustCompile(`(?is)bearer["'\\]*[\s:=]+` + value)},
	// https://user:password@host
	{[]string{"://"}, regexp.MustCompile(`(?s)://([^\s:/?#@]*:\S*|[^\s:/?#@]+)@`)},
	// Signatures in URLs that let anyone in.
	{[]string{"sig", "x-amz-", "x-goog-"}, regexp.MustCompile(`(?is)[?&;](?:sig|signature|x-(?:amz|goog)-[a-z-]+)=([^\s&"']+)`)},
	// Identifiers of AWS keys.
	{[]string{"akia", "asia"}, regexp.MustCompile(`(?:AKIA|ASIA)[A-Z0-9]{12,}`)},
	// JSON Web Tokens.
	{[]string{"eyj"}, regexp.MustCompile(`eyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*){0,3}`)},
	// Tokens with a form of their own: NGC, GitHub, GitLab, Slack, Google, Hugging Face.
	{
		[]string{"nvapi-", "gh", "github_pat_", "glpat-", "xox", "aiza", "hf_"},
		regexp.MustCompile(`nvapi-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{8,}|AIza[\w-]{30,}|hf_\w{16,}`),
	},
}

func (r rule) hinted(lower []byte) bool {
	for _, h := range r.hints {
		if bytes.Contains(lower, []byte(h)) {
			return true
		}
	}
	return false
}

// find looks for all secrets of this form. The search goes on inside of what was
// found: a secret may be in what looked like another one's value. ok is false when
// there are too many.
func (r rule) find(line []byte) (found []span, ok bool) {
	for at := 0; at < len(line); {
		m := r.form.FindSubmatchIndex(line[at:])
		if m == nil {
			return found, true
		}
		if len(found) == maxFinds {
			return nil, false
		}
		group := m[len(m)-2:]
		found = append(found, span{at + group[0], at + group[1]})
		at += max(group[0], m[0]+1)
	}
	return found, true
}
