package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// maxShown bounds what an error shows of a reference, in bytes.
const maxShown = 200

// Kinds of references.
const (
	ofEnvironment = "env"
	ofFile        = "file"
)

// reference is ${env:NAME} or ${file:/path}: the way a secret gets into a
// configuration.
type reference struct{ kind, name string }

func (r reference) String() string { return "${" + r.kind + ":" + r.name + "}" }

// parseReference reads a text that is wholly a reference.
func parseReference(text string) (r reference, ok bool) {
	body, begins := strings.CutPrefix(text, "${")
	body, ends := strings.CutSuffix(body, "}")
	kind, name, _ := strings.Cut(body, ":")
	if !begins || !ends || strings.ContainsAny(name, "{}") || kind != ofEnvironment && kind != ofFile {
		return reference{}, false
	}
	return reference{kind, name}, true
}

// literal takes the escapes out of a text: $${env: and $${file: stand for the texts
// with one $ less. bad begins with the first reference in it; empty is none.
func literal(text string) (plain, bad string) {
	var out strings.Builder
	for {
		at := nextMark(text)
		if at < 0 {
			out.WriteString(text)
			return out.String(), ""
		}
		if at == 0 || text[at-1] != '$' {
			return "", text[at:]
		}
		out.WriteString(text[:at-1])
		out.WriteString("${")
		text = text[at+len("${"):]
	}
}

// plainText is a text of a key that is no secret, without escapes; a reference in it
// is an error.
func plainText(text string) (string, error) {
	plain, bad := literal(text)
	if bad != "" {
		return "", fmt.Errorf("%s: a reference is allowed only in keys of type secret (docs/reference/configuration), "+
			"write the value itself, or write $${ for a literal ${", shown(bad))
	}
	return plain, nil
}

// nextMark is where the first reference begins, or -1.
func nextMark(text string) int {
	first := -1
	for _, kind := range []string{ofEnvironment, ofFile} {
		if at := strings.Index(text, "${"+kind+":"); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// shown is a reference at the begin of a text, fit for an error.
func shown(text string) string {
	if end := strings.IndexByte(text, '}'); end >= 0 {
		text = text[:end+1]
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "..."
	}
	return text
}

// resolve replaces a reference by what it names, with its name kept.
func (s *Secret) resolve(lookup func(string) (string, bool)) error {
	r, ok := parseReference(s.Reveal())
	if !ok {
		plain, bad := literal(s.Reveal())
		if bad != "" {
			return fmt.Errorf("%s is part of a longer text, but a reference must be the complete value: move the complete value into the file or the variable", shown(bad))
		}
		*s = NewSecret(plain)
		return nil
	}
	value, err := r.value(lookup)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", shown(r.String()), err)
	}
	*s = Secret{&value, r}
	return nil
}

// value is what a reference names.
func (r reference) value(lookup func(string) (string, bool)) (string, error) {
	if r.kind == ofFile {
		if !filepath.IsAbs(r.name) {
			return "", errors.New("the path of a file must be absolute")
		}
		return ReadSecret(r.name)
	}
	value, found := lookup(r.name)
	if !found {
		return "", fmt.Errorf("the environment has no %s: set it, for example with secretKeyRef", r.name)
	}
	return value, nil
}

// ReadSecret reads a file that holds one secret in one line, as a key of a mounted
// Secret does; the end of the line does not belong to it. Its errors name the file and
// show nothing of its content.
func ReadSecret(path string) (string, error) {
	info, err := os.Stat(path) // before it is opened: to open a named pipe waits for a writer
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file: use the file of one key of the Secret", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	return oneLine(path, content)
}

// oneLine is the secret in the content of a file.
func oneLine(path string, content []byte) (string, error) {
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case len(content) > maxSecret:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxSecret)
	case text == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("%s must hold one line without control characters", path)
	}
	return text, nil
}
