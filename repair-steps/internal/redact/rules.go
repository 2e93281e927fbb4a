package redact

import (
	"bytes"
	"regexp"
)

// rule is one form in which secrets are logged: a sign, and what follows it.
type rule struct {
	// signs in lower case; those of a line may be in any.
	signs []string
	// form of what follows a sign, from its begin on. The secret is its first group; of
	// a form without one it is all, with the sign.
	form *regexp.Regexp
}

// value is what follows a name: in quotes, up to the quote and what sticks to it; in
// quotes that are escaped, to the end of the line; else to the next blank.
const value = `("(?:\\.|[^"\\])*"?[^\s,}\]]*|'(?:\\.|[^'\\])*'?[^\s,}\]]*|\\.*|[^\s"'\\]\S*)`

var rules = []rule{
	// password=..., "token": "...", AWS_SECRET_ACCESS_KEY: ...
	{names(""), regexp.MustCompile(`(?s)^[\w.-]{0,32}["'\\]*\s*[:=]>?\s*` + value)},
	// --password ..., --db-token ...
	{names("-"), regexp.MustCompile(`(?s)^[\w.-]{0,32}\s+` + value)},
	// "auth": "...", as registries' credentials have it.
	{[]string{`"auth`}, regexp.MustCompile(`(?s)^\\*"\s*:\s*` + value)},
	// Authorization: Basic ..., to the end of the line.
	{[]string{"authorization"}, regexp.MustCompile(`(?s)^["'\\]*\s*[:=]>?\s*(.+)`)},
	{[]string{"bearer"}, regexp.MustCompile(`(?s)^["'\\]*[\s:=]+` + value)},
	// https://user:password@host
	{[]string{"://"}, regexp.MustCompile(`^([^\s:/?#@]*:\S*|[^\s:/?#@]+)@`)},
	// Signatures in URLs that let anyone in.
	{join([]string{"?", "&", ";"}, []string{"sig", "x-amz-", "x-goog-"}), regexp.MustCompile(`^[a-zA-Z-]*=([^\s&"']+)`)},
	// Identifiers of AWS keys.
	{[]string{"akia", "asia"}, regexp.MustCompile(`^[A-Z0-9]{12,}`)},
	// JSON Web Tokens.
	{[]string{"eyj"}, regexp.MustCompile(`^[\w-]{4,}\.[\w-]+(?:\.[\w-]*){0,3}`)},
	// Tokens with a form of their own: NGC, GitHub, GitLab, Slack, Google, Hugging Face.
	{
		[]string{"nvapi-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "aiza", "hf_"},
		regexp.MustCompile(`^[\w-]{16,}`),
	},
}

// names of values that are secrets, behind a mark; a name may go on.
func names(mark string) []string {
	all := []string{"password", "passwd", "passphrase", "pwd", "token", "secret", "credential"}
	for _, whose := range []string{"api", "access", "private", "account"} {
		all = append(all, join([]string{whose}, []string{"key", "_key", ".key", "-key"})...)
	}
	return join([]string{mark}, all)
}

// join is each of begins with each of ends.
func join(begins, ends []string) (all []string) {
	for _, b := range begins {
		for _, e := range ends {
			all = append(all, b+e)
		}
	}
	return all
}

// find looks for all secrets of this form: behind each sign, also one that is within
// what looked like another one's value. lower is the line in lower case, byte by byte.
// ok is false when there are too many.
func (r rule) find(line, lower []byte) (found []span, ok bool) {
	signs := 0
	for _, sign := range r.signs {
		for at := 0; ; {
			i := bytes.Index(lower[at:], []byte(sign))
			if i < 0 {
				break
			}
			if signs++; signs > maxSigns || len(found) > maxFinds {
				return nil, false
			}
			if s, ok := r.behind(line, span{at + i, at + i + len(sign)}); ok {
				found = append(found, s)
			}
			at += i + 1
		}
	}
	return found, len(found) <= maxFinds
}

// behind is the secret behind a sign, if there is one.
func (r rule) behind(line []byte, sign span) (span, bool) {
	m := r.form.FindSubmatchIndex(line[sign.to:min(len(line), sign.to+window)])
	if m == nil {
		return span{}, false
	}
	s := span{sign.from, sign.to + m[len(m)-1]}
	if len(m) > 2 {
		s.from = sign.to + m[2]
	}
	if m[1] == window { // it goes on, who knows how far
		s.to = len(line)
	}
	return s, true
}

// lowered is a line with its ASCII letters in lower case, of the same length.
func lowered(line []byte) []byte {
	lower := bytes.Clone(line)
	for i, b := range lower {
		if 'A' <= b && b <= 'Z' {
			lower[i] = b + 'a' - 'A'
		}
	}
	return lower
}
