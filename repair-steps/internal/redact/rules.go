package redact

import (
	"regexp"
	"slices"
	"strings"

	"github.com/coregx/ahocorasick"
)

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

var known = newFinder(slices.Concat(named(), pairs(), keys(), headers(), addresses(), tokens(), commands()))

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
// nothing from another. tooMany says that they cannot be told apart.
func find(line []byte) (spans []span, tooMany bool) {
	lower := lowered(line)
	matches := known.automaton.FindAllOverlapping(lower)
	if len(matches) == 0 {
		return nil, false
	}
	var signs, finds [maxRules]int
	for _, m := range matches {
		for _, r := range known.of[m.PatternID] {
			if signs[r]++; signs[r] > maxSigns {
				return nil, true
			}
			found := known.rules[r].find(line, lower, span{m.Start, m.End})
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
