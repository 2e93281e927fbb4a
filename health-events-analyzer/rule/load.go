package rule

import (
	_ "embed" // the built-in rules are a file
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/config"
)

//go:embed rules.toml
var builtIn []byte

// BuiltIn is the text of the built-in rule file.
func BuiltIn() []byte { return slices.Clone(builtIn) }

// Default are the built-in rules.
func Default() []Rule {
	rules, err := Parse("built-in rules", builtIn)
	if err != nil {
		panic(err) // a test parses them
	}
	return rules
}

// document is a file of rules.
type document struct {
	Rules []Rule `toml:"rules"`
}

// Parse reads a file of rules and returns the enabled ones. named return what is wrong with a name,
// beside its form. The error joins everything that is wrong, each with file, rule and key.
func Parse(file string, data []byte, named ...func(name string) error) ([]Rule, error) {
	if err := refusePipelines(file, data); err != nil {
		return nil, err
	}
	var d document
	if err := config.Decode(file, data, &d); err != nil {
		return nil, err
	}
	var problems []error
	if len(d.Rules) == 0 {
		problems = append(problems, fmt.Errorf("%s: [[rules]] is missing, omit the file to use the built-in rules", file))
	}
	var out []Rule
	names := map[string]bool{}
	for i, r := range d.Rules {
		at := fmt.Sprintf("%s: rules[%d] (%q)", file, i, r.Name)
		c := &checker{at: at, rule: &d.Rules[i]}
		problems = append(problems, c.check()...)
		if names[r.Name] {
			problems = append(problems, fmt.Errorf("%s: name is a duplicate", at))
		}
		names[r.Name] = true
		for _, check := range named {
			if err := check(r.Name); err != nil {
				problems = append(problems, fmt.Errorf("%s: name: %w", at, err))
			}
		}
		if r.Enabled == nil || *r.Enabled {
			out = append(out, d.Rules[i])
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return out, nil
}

// limits of a rule.
const (
	maxWindow = 30 * 24 * time.Hour
	// maxClusterWindow bounds what is read of the store at the start.
	maxClusterWindow = 24 * time.Hour
	maxName          = 200
	maxCount         = 10_000
)

// checker validates one rule and completes its names.
type checker struct {
	at       string
	rule     *Rule
	problems []error
}

func (c *checker) invalid(key, format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%s: %s: %s", c.at, key, fmt.Sprintf(format, args...)))
}

func (c *checker) check() []error {
	r := c.rule
	if r.Name == "" || len(r.Name) > maxName || strings.ContainsFunc(r.Name, func(x rune) bool { return x <= ' ' || x == 0x7f }) {
		c.invalid("name", "%q is not a check name: use 1 to %d characters without spaces", r.Name, maxName)
	}
	c.output()
	c.scope()
	if r.Window <= 0 || r.Window > maxWindow {
		c.invalid("window", "is %s: use a duration between 1ns and %s, for example \"24h\"", r.Window, maxWindow)
	}
	if r.Count < 0 || r.Count > maxCount {
		c.invalid("count", "is %d: use 1 to %d", r.Count, maxCount)
	}
	if forms := c.forms(); len(forms) > 1 {
		c.invalid(strings.Join(forms, " and "), "are mutually exclusive: use one of them")
	}
	c.match("when", r.When)
	if r.Of != nil {
		c.match("of", *r.Of)
	}
	c.keys("by", r.By)
	c.keys("distinct", r.Distinct)
	c.bursts()
	for i, m := range r.Sequence {
		c.match(fmt.Sprintf("sequence[%d]", i), m)
	}
	if r.Sequence != nil && (len(r.Sequence) < 2 || r.Count > 1 || r.Of != nil) {
		c.invalid("sequence", "requires at least two steps, and excludes of and count")
	}
	for i, u := range r.Unless {
		c.match(fmt.Sprintf("unless[%d]", i), u.Match)
		c.within(fmt.Sprintf("unless[%d].by", i), u.By)
	}
	return c.problems
}

// forms lists the ways of counting that are given.
func (c *checker) forms() []string {
	var out []string
	for name, given := range map[string]bool{
		"bursts": c.rule.Bursts != nil, "distinct": c.rule.Distinct != nil, "sequence": c.rule.Sequence != nil,
	} {
		if given {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// output checks what the rule publishes.
func (c *checker) output() {
	r := c.rule
	action, err := record.ParseAction(string(r.Action))
	if err != nil || action == record.ActionCustom || action == record.ActionUnknown {
		c.invalid("action", "%q is not one of NONE, COMPONENT_RESET, CONTACT_SUPPORT, RUN_FIELDDIAG, RESTART_VM, RESTART_BM, REPLACE_VM and RUN_DCGMEUD", r.Action)
	}
	r.Action = action
	if r.Strategy != "" {
		if _, err := record.ParseStrategy(string(r.Strategy)); err != nil {
			c.invalid("processingStrategy", "%q is not PROCESS or PERSIST_ONLY", r.Strategy)
		}
	}
	if r.Clear != WhenSourcesClose && r.Clear != Manual {
		c.invalid("clear", "%q is not sources (recovers when all its sources recover) or manual (requires a manual clear)", r.Clear)
	}
}

// scope checks whose events the rule looks at, and what it may derive about a node on the
// evidence of others.
func (c *checker) scope() {
	r := c.rule
	switch r.Scope {
	case "":
		r.Scope = OnNode
	case OnNode:
	case OnCluster:
		if r.IsFatal() {
			c.invalid("action", "is %s with scope = \"cluster\": use NONE, because no node is repaired on the evidence of other nodes", r.Action)
		}
		if r.Window > maxClusterWindow {
			c.invalid("window", "is %s with scope = \"cluster\": use at most %s, because the events of all nodes are kept for it", r.Window, maxClusterWindow)
		}
	default:
		c.invalid("scope", "%q is not node (the events of one node, the default) or cluster (the events of all nodes)", r.Scope)
	}
}

func (c *checker) bursts() {
	b := c.rule.Bursts
	if b == nil {
		return
	}
	if b.Gap <= 0 {
		c.invalid("bursts.gap", "is %s: use a duration, for example \"3m\"", b.Gap)
	}
	if (len(b.Sticky) > 0) != (b.StickyWithin > 0) {
		c.invalid("bursts.stickyWithin", "is %s with %d sticky codes: set both or none", b.StickyWithin, len(b.Sticky))
	}
	if b.Last == "" {
		b.Last = LastAny
	}
	if !slices.Contains([]Last{LastAny, LastOnce, LastAlone}, b.Last) {
		c.invalid("bursts.last", "%q is not any, once or alone", b.Last)
	}
	if b.Last == LastAlone && c.rule.Count > 1 {
		c.invalid("bursts.last", "alone means one burst, and count is %d: remove one of them", c.rule.Count)
	}
	c.within("bursts.by", b.By)
	if b.Among != nil {
		c.match("bursts.among", *b.Among)
	}
}

func (c *checker) keys(at string, keys []Key) {
	seen := map[Key]bool{}
	for _, k := range keys {
		lower := strings.ToLower(string(k)) == string(k)
		switch {
		case k == Node && c.rule.Scope == OnNode:
			c.invalid(at, "\"node\" requires scope = \"cluster\", because with scope = \"node\" all events are about one node")
		case k == Node:
		case lower && !slices.Contains([]Key{Device, Code, Check, Agent, Fatal, Session}, k):
			c.invalid(at, "%q is not gpu, code, check, agent, fatal, session, node, or an entity type such as NVLINK", k)
		}
		if seen[k] {
			c.invalid(at, "%q is a duplicate", k)
		}
		seen[k] = true
	}
}

// within checks keys that have to be among those of the rule.
func (c *checker) within(at string, keys []Key) {
	for _, k := range keys {
		if !slices.Contains(c.rule.By, k) {
			c.invalid(at, "%q is not listed in by of the rule", k)
		}
	}
}

// registers are how many an event names, and their width.
const (
	registers    = 7
	registerBits = 32
)

func (c *checker) match(at string, m Match) {
	if m.Remediated && m.Open {
		c.invalid(at, "remediated and open are mutually exclusive")
	}
	if len(m.Codes) > 0 && len(m.NotCodes) > 0 {
		c.invalid(at, "codes and notCodes are mutually exclusive")
	}
	g := m.Register
	if g == nil {
		return
	}
	if len(g.Name) != 4 || !strings.HasPrefix(g.Name, "REG") || g.Name[3] < '0' || g.Name[3] >= '0'+registers {
		c.invalid(at+".register.name", "%q is not one of REG0 to REG6", g.Name)
	}
	if len(g.Bits) == 0 {
		c.invalid(at+".register.bits", "is empty")
	}
	for _, b := range g.Bits {
		if b < 0 || b >= registerBits {
			c.invalid(at+".register.bits", "%d is not a bit of 0 to %d", b, registerBits-1)
		}
	}
}
