// Package redact masks secrets in logs, line by line as they stream: passwords,
// tokens, keys and the like, by the names that programs log them under, by the command
// lines that carry them, and by the formats that vendors give their tokens.
//
// A secret that nothing names and that has no format of its own is not recognized.
// testdata/planted.txt lists the forms that are.
package redact

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/coregx/ahocorasick"
)

// Mask stands for a secret.
const Mask = "[redacted]"

const (
	// maxLine is how many bytes a line has at most; a longer one is left out.
	maxLine = 256 << 10
	// maxFinds and maxSigns bound the secrets of one kind in a line, and the signs of
	// one; a line with more is masked as a whole.
	maxFinds = 64
	maxSigns = 512
	// window is how many bytes behind a sign a pattern looks at. If a secret goes on
	// behind it, the rest of the line is masked.
	window = 4 << 10
	// maxKeyLines bounds the lines of a private key, and of a value below its name: a
	// key of 16,384 bits has 200 lines.
	maxKeyLines = 512
	// maxRounds bounds how often a line is looked at again after something in it was
	// masked or removed; a line that still changes then is masked as a whole.
	maxRounds = 8
)

// span is a part of a line: from its first byte to the one behind its last.
type span struct{ from, to int }

// Line is a line without its secrets, and how many there were. What depends on the
// lines before needs a Writer.
func Line(line []byte) (clean []byte, secrets int) {
	line, ok := plain(line)
	if !ok {
		return []byte(Mask), 1
	}
	return redact(line, expected{})
}

// Text is a text of one line or several without its secrets.
func Text(text string) string {
	var out bytes.Buffer
	w := NewWriter(&out)
	_, _ = w.Write([]byte(text))
	_ = w.Flush()
	return out.String()
}

// redact masks what the rules find in a plain line, and what the lines before it
// announced, until nothing more is found: what it returns, it returns unchanged.
func redact(line []byte, e expected) (clean []byte, secrets int) {
	for range maxRounds {
		spans, all := find(line)
		if all {
			return []byte(Mask), secrets + 1
		}
		spans = slices.Concat(spans, e.spans(line, span{0, len(line)}), folded(line))
		spans = unmasked(line, merge(spans))
		if len(spans) == 0 {
			return line, secrets
		}
		secrets += len(spans)
		line = mask(line, spans)
	}
	return []byte(Mask), secrets
}

// merge orders spans and joins those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.from <= out[last].to {
			out[last].to = max(out[last].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// unmasked are the spans that are not masked yet.
func unmasked(line []byte, spans []span) []span {
	return slices.DeleteFunc(spans, func(s span) bool { return string(line[s.from:s.to]) == Mask })
}

// mask writes Mask in place of each span.
func mask(line []byte, spans []span) []byte {
	var out []byte
	at := 0
	for _, s := range spans {
		out = append(append(out, line[at:s.from]...), Mask...)
		at = s.to
	}
	return append(out, line[at:]...)
}

// rule is one kind of forms in which secrets are logged: signs, and what is a secret
// where one is.
type rule struct {
	// signs in lower case; those of a line may be in any.
	signs []string
	// find is the secrets that a sign of a line is about, by what is around it. lower is
	// the line in lower case, byte by byte.
	find func(line, lower []byte, sign span) []span
}

// maxRules is how many rules there may be.
const maxRules = 64

// finder looks for the signs of all rules at once.
type finder struct {
	rules []rule
	// of has the rules of each sign, by its number in the automaton.
	of        [][]int
	automaton *ahocorasick.Automaton
}

var secretFinder = newFinder(slices.Concat(named(), pairs(), keys(), headers(), addresses(), tokens(), commands()))

func newFinder(rules []rule) finder {
	f := finder{rules: rules}
	var signs []string
	for i, r := range rules {
		for _, s := range r.signs {
			at := slices.Index(signs, s)
			if at < 0 {
				at = len(signs)
				signs, f.of = append(signs, s), append(f.of, nil)
			}
			f.of[at] = append(f.of[at], i)
		}
	}
	f.automaton = automaton(signs)
	return f
}

// automaton looks for texts, all at once.
func automaton(texts []string) *ahocorasick.Automaton {
	a, err := ahocorasick.NewBuilder().AddStrings(texts).SetPrefilter(false).Build()
	if err != nil {
		panic("building the automaton of " + strings.Join(texts, ", ") + ": " + err.Error())
	}
	return a
}

// find looks for the secrets of a line, by each rule for itself: what one finds hides
// nothing from another. tooMany reports whether there are too many to examine.
func find(line []byte) (spans []span, tooMany bool) {
	lower := lowered(line)
	matches := secretFinder.automaton.FindAllOverlapping(lower)
	if len(matches) == 0 {
		return nil, false
	}
	var signs, finds [maxRules]int
	for _, m := range matches {
		for _, r := range secretFinder.of[m.PatternID] {
			if signs[r]++; signs[r] > maxSigns {
				return nil, true
			}
			found := secretFinder.rules[r].find(line, lower, span{m.Start, m.End})
			if finds[r] += len(found); finds[r] > maxFinds {
				return nil, true
			}
			spans = append(spans, found...)
		}
	}
	return spans, false
}

// lowered is a line with its ASCII letters in lower case, of the same length.
func lowered(line []byte) []byte {
	lower := make([]byte, len(line))
	for i, b := range line {
		lower[i] = lowerCases[b]
	}
	return lower
}

var lowerCases = func() (all [256]byte) {
	for b := range all {
		all[b] = byte(b)
		if 'A' <= b && b <= 'Z' {
			all[b] += 'a' - 'A'
		}
	}
	return all
}()

// behind finds what a pattern matches behind a sign: its first group, or all with the
// sign.
func behind(form string) func(line, lower []byte, sign span) []span {
	pattern := regexp.MustCompile(`(?s)^` + form)
	return func(line, _ []byte, sign span) []span {
		m := pattern.FindSubmatchIndex(line[sign.to:min(len(line), sign.to+window)])
		if m == nil {
			return nil
		}
		s := span{sign.from, sign.to + m[len(m)-1]}
		if len(m) > 2 {
			s.from = sign.to + m[2]
		}
		if m[1] == window { // it goes on
			s.to = len(line)
		}
		return []span{s}
	}
}
