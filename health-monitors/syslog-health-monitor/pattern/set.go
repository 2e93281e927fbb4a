package pattern

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Set is compiled rules.
type Set struct {
	rules []Rule
	// begins holds, by the first two bytes of a text that rules look for, those
	// texts: a line is gone through once, whatever the number of rules.
	begins map[uint16][]literal
	marks  [1 << 16 / 64]uint64
}

// literal is a text that a rule looks for: rule/2, odd for the text of After.
type literal struct {
	text string
	rule int
}

// newSet takes rules that were compiled, in the order in which they are asked.
func newSet(rules []Rule) *Set {
	s := &Set{rules: rules, begins: map[uint16][]literal{}}
	for i, r := range rules {
		if !r.Enabled {
			continue
		}
		s.scanRule(r.Contains, 2*i)
		if r.after != nil {
			s.scanRule(r.AfterContains, 2*i+1)
		}
	}
	return s
}

func (s *Set) scanRule(text string, rule int) {
	at := uint16(text[0])<<8 | uint16(text[1])
	s.begins[at] = append(s.begins[at], literal{text, rule})
	s.marks[at/64] |= 1 << (at % 64)
}

// Rules are all rules, in their order.
func (s *Set) Rules() []Rule { return slices.Clone(s.rules) }

// Checks are the names of the checks of rules, sorted.
func (s *Set) Checks() []string {
	checks := map[string]bool{}
	for _, r := range s.rules {
		checks[r.Check] = true
	}
	return slices.Sorted(maps.Keys(checks))
}

// Speaks reports whether a line may match a rule.
func (s *Set) Speaks(line string) bool {
	found := false
	s.each(line, func(int) bool { found = true; return false })
	return found
}

// each calls visit for every rule whose text a line holds, until visit returns false.
func (s *Set) each(line string, visit func(rule int) bool) {
	line = line[:min(len(line), lineBytes)]
	for i := 0; i+1 < len(line); i++ {
		at := uint16(line[i])<<8 | uint16(line[i+1])
		if s.marks[at/64]&(1<<(at%64)) == 0 {
			continue
		}
		for _, l := range s.begins[at] {
			if strings.HasPrefix(line[i:], l.text) && !visit(l.rule) {
				return
			}
		}
	}
}

// Match is a rule that a line matched.
type Match struct {
	// Rule that matched.
	Rule Rule
	// Entities and Metadata are its named groups, in the expression's order.
	Entities [][2]string
	Metadata map[string]string
	// Times is how many errors the line reports; 0 where it has no number.
	Times int
}

// Find gives the first rule of each check that a message of the kernel matches from its
// beginning on, in the rules' order, and remembers in m the lines that come before others.
// since is how long after the boot the message was written, 0 where that is not known.
func (s *Set) Find(line string, since time.Duration, m *Memory) []Match {
	var asked []int
	s.each(line, func(rule int) bool { asked = append(asked, rule); return true })
	slices.Sort(asked)
	line = line[:min(len(line), lineBytes)]
	var out []Match
	for _, a := range slices.Compact(asked) {
		r := s.rules[a/2]
		if a%2 == 1 {
			s.begin(r, line, m)
			continue
		}
		if slices.ContainsFunc(out, func(o Match) bool { return o.Rule.Check == r.Check }) {
			continue
		}
		if r.SinceBoot > 0 && (since <= 0 || since > r.SinceBoot) {
			continue
		}
		if found, ok := s.match(a/2, line, m); ok {
			out = append(out, found)
		}
	}
	return out
}

// begin remembers the groups of a line that comes before another.
func (s *Set) begin(r Rule, line string, m *Memory) {
	groups := r.after.FindStringSubmatch(line)
	if groups == nil {
		return
	}
	if m.Begun == nil {
		m.Begun = map[string]Begun{}
	}
	b := Begun{Left: r.Within, Groups: map[string]string{}}
	for i, name := range r.after.SubexpNames() {
		if name != "" && groups[i] != "" {
			b.Groups[name] = cut(groups[i])
		}
	}
	m.Begun[r.Name] = b
}

func (s *Set) match(index int, line string, m *Memory) (Match, bool) {
	r := s.rules[index]
	before, begun := m.Begun[r.Name]
	if r.after != nil && !begun {
		return Match{}, false
	}
	groups := r.match.FindStringSubmatchIndex(line)
	if groups == nil {
		return Match{}, false
	}
	found := Match{Rule: r, Metadata: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(before.Groups)) {
		found.add(name, before.Groups[name])
	}
	for i, name := range r.match.SubexpNames() {
		if from := groups[2*i]; name != "" && from >= 0 && groups[2*i+1] > from {
			found.add(name, cut(line[from:groups[2*i+1]]))
		}
	}
	if !r.Ignore { // what makes one line harmless makes those beside it so
		delete(m.Begun, r.Name)
	}
	return found, true
}

// add takes a named group: an entity, or metadata if its name begins small.
func (f *Match) add(name, value string) {
	if n, err := strconv.Atoi(value); name == GroupCount && err == nil {
		f.Times = n
	}
	if name[0] >= 'A' && name[0] <= 'Z' {
		f.Entities = append(f.Entities, [2]string{name, value})
		return
	}
	f.Metadata[name] = value
}

// valueBytes bounds an entity or a metadata value.
const valueBytes = 128

func cut(value string) string { return strings.ToValidUTF8(value[:min(len(value), valueBytes)], "") }

// Memory is what rules remember between lines. It is kept beside the outbox.
type Memory struct {
	// Begun holds, by rule, a line that comes before another.
	Begun map[string]Begun `json:"begun,omitempty"`
	// Seen holds, by rule and thing, the matches that are counted.
	Seen map[string]Seen `json:"seen,omitempty"`
}

// Begun is a line that was seen and its end not.
type Begun struct {
	Left   int               `json:"left"`
	Groups map[string]string `json:"groups,omitempty"`
}

// Seen is what is remembered of the matches of one rule about one thing, in Unix
// seconds.
type Seen struct {
	// Times of the matches that were not reported.
	Times []int64 `json:"times,omitempty"`
	// Reported is when it was reported last.
	Reported int64 `json:"told,omitempty"`
}

// maxSeen bounds the things that are remembered.
const maxSeen = 512

// Clone copies the memory.
func (m Memory) Clone() Memory {
	m.Begun, m.Seen = maps.Clone(m.Begun), maps.Clone(m.Seen)
	return m
}

// Pass lets lines pass.
func (m *Memory) Pass(lines int) {
	for name, b := range m.Begun {
		if b.Left -= lines; b.Left < 0 {
			delete(m.Begun, name)
		} else {
			m.Begun[name] = b
		}
	}
}

// Counts reports whether a match about a device (empty for other things) makes an
// event now: when its errors are the last of Count within Window, and the thing was
// not reported within Pause.
func (m *Memory) Counts(f Match, device string, now time.Time) bool {
	if f.Rule.Count == 1 && f.Rule.Pause == 0 {
		return true
	}
	if m.Seen == nil {
		m.Seen = map[string]Seen{}
	}
	key := about(f.Rule, device, f.Entities)
	seen, known := m.Seen[key]
	if !known && len(m.Seen) >= maxSeen {
		m.dropOldest()
	}
	at := now.Unix()
	if reported := at - seen.Reported; seen.Reported != 0 && reported >= 0 && reported < int64(f.Rule.Pause/time.Second) {
		return false
	}
	within := func(t int64) bool { return at-t <= int64(f.Rule.Window/time.Second) && t <= at }
	times := slices.Repeat([]int64{at}, min(max(1, f.Times), f.Rule.Count))
	for _, t := range seen.Times {
		if within(t) {
			times = append(times, t)
		}
	}
	if len(times) >= f.Rule.Count {
		m.Seen[key] = Seen{Reported: at}
		return true
	}
	m.Seen[key] = Seen{Times: times, Reported: seen.Reported}
	return false
}

// dropOldest makes space: it forgets the thing that was seen longest ago.
func (m *Memory) dropOldest() {
	var oldest string
	least := int64(0)
	for key, s := range m.Seen {
		newest := s.Reported
		for _, t := range s.Times {
			newest = max(newest, t)
		}
		if oldest == "" || newest < least || newest == least && key < oldest {
			oldest, least = key, newest
		}
	}
	delete(m.Seen, oldest)
}

// Forget forgets the matches about a thing, so that the next one is reported.
func (m *Memory) Forget(f Match, device string) { delete(m.Seen, about(f.Rule, device, f.Entities)) }

// Cleared forgets the matches of the codes that a recovery ends, so that the
// next one is reported at once.
func (s *Set) Cleared(f Match, device string, m *Memory) {
	for _, r := range s.rules {
		if r.Check == f.Rule.Check && slices.Contains(f.Rule.Clears, r.Code) {
			delete(m.Seen, about(r, device, f.Entities))
		}
	}
}

// about is the key of what is remembered of a rule's thing.
func about(r Rule, device string, entities [][2]string) string {
	return r.Name + " " + device + " " + Thing(entities)
}
