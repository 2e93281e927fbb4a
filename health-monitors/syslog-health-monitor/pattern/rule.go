// Package pattern finds faults in the kernel log that have no number: each rule
// is a regular expression with what a match means. It does no I/O and reads no
// clock; what it has to remember is in Memory, which its owner keeps.
package pattern

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// Rule is one pattern of the kernel log as an operator writes it.
type Rule struct {
	// Name is the rule's own, and the error code of its events.
	Name string `toml:"name"`
	// Code is the error code where several rules share one; empty: Name.
	Code string `toml:"code"`
	// Enabled rules are looked for; default true.
	Enabled bool `toml:"enabled"`
	// Check is the check name, which begins with SysLogs.
	Check string `toml:"check"`
	// Class is the component class, for example GPU, NIC or Node.
	Class string `toml:"componentClass"`
	// Contains is a text of at least 3 bytes that every line of interest holds:
	// lines without it cost nothing.
	Contains string `toml:"contains"`
	// Match is the expression (RE2) for the beginning of the kernel's message. Named
	// groups are entities, or metadata if their names begin with a small letter.
	Match string `toml:"match"`
	// After is an expression that an earlier line must have matched, at most
	// Within lines before; with AfterContains as Contains is to Match.
	After         string `toml:"after"`
	AfterContains string `toml:"afterContains"`
	Within        int    `toml:"within"`
	// Fatal and Action are those of the events.
	Fatal  bool          `toml:"fatal"`
	Action record.Action `toml:"action"`
	// RebootCures is true if a reboot ends the fault; default true.
	RebootCures bool `toml:"rebootCures"`
	// Strategy is PROCESS, PERSIST_ONLY, or empty for the monitor's own.
	Strategy record.Strategy `toml:"processingStrategy"`
	// Count is how many matches about the same thing within Window make an event.
	Count  int           `toml:"count"`
	Window time.Duration `toml:"window"`
	// Pause is how long a thing is not reported again; repeats are counted.
	Pause time.Duration `toml:"pause"`
	// Clears makes a match a recovery: the codes of this check that it ends on the
	// thing that it names.
	Clears []string `toml:"clears"`
	// Lost rules match lines about a GPU that is off the bus.
	Lost bool `toml:"lost"`
	// KnownGPU rules hold for GPUs of the node alone: group PCI is the address of one, or
	// group PORT that of a bridge in front of some.
	KnownGPU bool `toml:"knownGPU"`
	// Ignore makes a match no event; the later rules of its check are not asked.
	Ignore bool `toml:"ignore"`
	// SinceBoot restricts a rule to the first so long of a boot. It does not match where
	// the log does not show how old the boot is; 0 is any time.
	SinceBoot time.Duration `toml:"sinceBoot"`

	match, after *regexp.Regexp
}

// Bounds of rules.
const (
	// MaxRules bounds the rules, the built-in ones included.
	MaxRules = 256
	// MaxExpression bounds an expression, in bytes.
	MaxExpression = 2048
	// MaxCount bounds Count, MaxWindow Window, Pause and SinceBoot, MaxWithin Within.
	MaxCount  = 100
	MaxWindow = 7 * 24 * time.Hour
	MaxWithin = 1000
	// lineBytes is how much of a line is looked at.
	lineBytes = 4 << 10
)

// CheckPrefix begins the name of every check of this monitor, so that no rule can publish
// events of another agent's check.
const CheckPrefix = "SysLogs"

// Blank is a rule before its keys are read.
func Blank() Rule {
	return Rule{Enabled: true, RebootCures: true, Count: 1, Pause: time.Minute, Action: record.ActionNone}
}

// Problem is what is wrong with a rule's key.
type Problem struct {
	// Rule is the rule's name.
	Rule string
	Key  string
	Err  error
}

// Compile makes a set of rules, which are asked in their order, or returns what is wrong
// with them.
func Compile(rules []Rule) (*Set, []Problem) {
	var problems []Problem
	for i := range rules {
		for _, p := range rules[i].compile() {
			problems = append(problems, Problem{rules[i].Name, p.key, p.err})
		}
	}
	if len(rules) > MaxRules {
		problems = append(problems, Problem{rules[MaxRules].Name, "name", fmt.Errorf("there are more than %d patterns", MaxRules)})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return newSet(rules), nil
}

// problem is what is wrong with a key.
type problem struct {
	key string
	err error
}

var (
	checkName = regexp.MustCompile(`^` + CheckPrefix + `[A-Za-z][A-Za-z0-9]{0,55}$`)
	className = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,31}$`)
	ruleName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

// reserved are checks whose codes have a meaning of their own.
var reserved = map[string]bool{"SysLogsXIDError": true, "SysLogsSXIDError": true}

// compile checks a rule and makes it ready.
func (r *Rule) compile() (problems []problem) {
	wrong := func(key, format string, args ...any) {
		problems = append(problems, problem{key, fmt.Errorf(format, args...)})
	}
	if !ruleName.MatchString(r.Name) {
		wrong("name", "%q is not a name of letters, digits, dots, _ and -", r.Name)
	}
	if r.Code == "" {
		r.Code = r.Name
	}
	if !ruleName.MatchString(r.Code) {
		wrong("code", "%q is not a code of letters, digits, dots, _ and -", r.Code)
	}
	if !checkName.MatchString(r.Check) || reserved[r.Check] {
		wrong("check", "%q is not a check name that begins with %s, or it has a catalogue of its own", r.Check, CheckPrefix)
	}
	if !className.MatchString(r.Class) {
		wrong("componentClass", "%q is not a word of letters and digits", r.Class)
	}
	problems = append(problems, r.compileExpressions()...)
	return append(problems, r.checkMeaning()...)
}

func (r *Rule) compileExpressions() (problems []problem) {
	expression := func(key, text, literal, literalKey string) *regexp.Regexp {
		compiled, err := regexp.Compile("^(?:" + text + ")")
		switch {
		case text == "" || len(text) > MaxExpression:
			err = fmt.Errorf("has %d bytes, use 1 to %d", len(text), MaxExpression)
		case err == nil && compiled.MatchString(""):
			err = errors.New("matches an empty line")
		}
		if err != nil {
			problems = append(problems, problem{key, err})
		}
		if len(literal) < 3 {
			problems = append(problems, problem{literalKey, fmt.Errorf("%q has less than 3 bytes, use a text that every matching line contains", literal)})
		}
		return compiled
	}
	r.match = expression("match", r.Match, r.Contains, "contains")
	if r.After != "" {
		r.after = expression("after", r.After, r.AfterContains, "afterContains")
		if r.Within < 1 || r.Within > MaxWithin {
			problems = append(problems, problem{"within", fmt.Errorf("%d is not in the range of 1 to %d lines", r.Within, MaxWithin)})
		}
	}
	return problems
}

// checkMeaning looks at what a match means.
func (r *Rule) checkMeaning() (problems []problem) {
	wrong := func(key, format string, args ...any) {
		problems = append(problems, problem{key, fmt.Errorf(format, args...)})
	}
	if _, err := record.ParseAction(string(r.Action)); err != nil {
		wrong("action", "%w", err)
	}
	if r.Fatal && r.Action == record.ActionNone {
		wrong("action", "a fatal fault requires an action, and CONTACT_SUPPORT requests manual intervention")
	}
	if r.Strategy != "" {
		if _, err := record.ParseStrategy(string(r.Strategy)); err != nil {
			wrong("processingStrategy", "%w", err)
		}
	}
	if r.Count < 1 || r.Count > MaxCount {
		wrong("count", "%d is not in the range of 1 to %d", r.Count, MaxCount)
	}
	if r.Window < 0 || r.Window > MaxWindow || (r.Count > 1) != (r.Window > 0) {
		wrong("window", "%s is not above 0s and at most %s, or count is not more than 1", r.Window, MaxWindow)
	}
	if r.Pause < 0 || r.Pause > MaxWindow {
		wrong("pause", "%s is not in the range of 0s to %s", r.Pause, MaxWindow)
	}
	if r.SinceBoot < 0 || r.SinceBoot > MaxWindow {
		wrong("sinceBoot", "%s is not in the range of 0s to %s", r.SinceBoot, MaxWindow)
	}
	return append(problems, r.checkKind()...)
}

// checkKind looks at whether a match is a fault, a recovery or nothing.
func (r *Rule) checkKind() (problems []problem) {
	wrong := func(key, format string, args ...any) {
		problems = append(problems, problem{key, fmt.Errorf(format, args...)})
	}
	for _, code := range r.Clears {
		if !ruleName.MatchString(code) {
			wrong("clears", "%q is not a code", code)
		}
	}
	if len(r.Clears) > 0 && (r.Fatal || r.Count > 1 || r.Lost) {
		wrong("clears", "a recovery cannot be fatal, counted or lose a GPU")
	}
	if r.Ignore && (r.Fatal || r.Lost || len(r.Clears) > 0) {
		wrong("ignore", "an ignored match cannot be fatal, end a fault or lose a GPU")
	}
	if r.KnownGPU && (r.Class != "GPU" || r.match != nil && !r.names(GroupPCI, GroupPort)) {
		wrong("knownGPU", "componentClass is not GPU, or no group of match is named %s or %s", GroupPCI, GroupPort)
	}
	return problems
}

// Groups of expressions that have a meaning of their own.
const (
	// GroupPCI is the address of a device, GroupPort that of a bridge in front of devices.
	GroupPCI  = "PCI"
	GroupPort = "PORT"
	// GroupCount is how many errors a line reports.
	GroupCount = "count"
)

// names reports whether the expression has a group of one of these names.
func (r *Rule) names(groups ...string) bool {
	return slices.ContainsFunc(r.match.SubexpNames(), func(name string) bool { return slices.Contains(groups, name) })
}

// Thing writes entities down as one key.
func Thing(entities [][2]string) string {
	var b strings.Builder
	for _, e := range entities {
		b.WriteString(e[0] + "=" + e[1] + " ")
	}
	return b.String()
}

// MetadataPattern names the rule by which an event was made.
const MetadataPattern = "pattern"

// Event makes the health event of a match about a device, which may be none;
// message is the raw line.
func (f Match) Event(d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	e := s.About(f.Rule.Check, d, message)
	e.ComponentClass = f.Rule.Class
	e.EntitiesImpacted = append(e.EntitiesImpacted, location.Entities(f.Entities...)...)
	e.IsFatal, e.ErrorCode = f.Rule.Fatal, []string{f.Rule.Code}
	e.RecommendedAction = record.ActionNumber(d.Action(f.Rule.Action))
	maps.Copy(e.Metadata, f.Metadata)
	e.Metadata[MetadataPattern] = f.Rule.Name
	return e
}

// Recovery makes the healthy event of a match that ends faults of its check.
func (f Match) Recovery(d location.Device, s location.Sighting, message string) *protos.HealthEvent {
	e := f.Event(d, s, message)
	e.IsHealthy, e.IsFatal = true, false
	e.RecommendedAction = record.ActionNumber(record.ActionNone)
	e.ErrorCode = slices.Clone(f.Rule.Clears)
	return e
}
