// Package eviction decides which pods of a node must leave it before a repair, and how: all of
// them, those on one GPU, or none, as the faults ask. It is shared by the drain itself and by
// callers that check, before an irreversible act, whether pods that had to go are back. It does no
// I/O and reads no clock.
package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode is how pods of a namespace leave a node.
type Mode string

// Modes.
const (
	// Immediate asks for an eviction at once; disruption budgets are honoured.
	Immediate Mode = "Immediate"
	// AllowCompletion waits until the pods finish or leave by themselves.
	AllowCompletion Mode = "AllowCompletion"
	// DeleteAfterTimeout waits until a deadline counted from the fault, then
	// deletes without grace.
	DeleteAfterTimeout Mode = "DeleteAfterTimeout"
)

// Modes lists every mode.
func Modes() []Mode { return []Mode{Immediate, AllowCompletion, DeleteAfterTimeout} }

// UnmatchedMode is the mode of a namespace that no rule names: the one that
// never takes a pod away.
const UnmatchedMode = AllowCompletion

// NamespaceRule gives the namespaces that a glob names their mode.
type NamespaceRule struct {
	// Name is a namespace or a glob of path.Match ("*", "?", "[a-z]").
	Name string `toml:"name"`
	// Mode is one of Modes.
	Mode Mode `toml:"mode"`
}

// Config is the eviction part of a configuration file.
type Config struct {
	_ struct{} `block:"Eviction" usage:"Rules for the Pods that must leave a node. Give node-drainer and fault-remediation the same values ([draining](../../concepts/draining.md))"`

	// EvictionTimeoutInSeconds is the grace period of Immediate evictions, a
	// string of whole seconds above 0. Empty leaves every pod its own.
	EvictionTimeoutInSeconds string `toml:"evictionTimeoutInSeconds"`
	// SystemNamespaces is a regular expression; the pods of namespaces that
	// match it are left alone. Empty matches none.
	SystemNamespaces string `toml:"systemNamespaces"`
	// DeleteAfterTimeoutMinutes is the deadline of DeleteAfterTimeout, counted
	// from the fault.
	DeleteAfterTimeoutMinutes int `toml:"deleteAfterTimeoutMinutes" bounds:"at least 1 min"`
	// NotReadyTimeoutMinutes is how long a pod may be not ready, or stay after
	// the end of its grace period, before it counts as lost and holds the drain
	// of a node no longer.
	NotReadyTimeoutMinutes int `toml:"notReadyTimeoutMinutes" bounds:"at least 1 min"`
	// PartialDrainEnabled evicts only the Pods on the GPU of a COMPONENT_RESET. Set
	// it only if that action resets one GPU, because a reboot ends the Pods that
	// stayed.
	PartialDrainEnabled bool `toml:"partialDrainEnabled"`
	// UserNamespaces are the rules; the most specific match wins.
	UserNamespaces []NamespaceRule `toml:"userNamespaces"`
	// OwnerKinds define the meaning of AllowCompletion for the Pods of one kind of
	// controller, in namespaces that no rule names more closely than "*". They come
	// before the built-in ones.
	OwnerKinds []OwnerRule `toml:"ownerKinds"`
}

// Default is the configuration without a file: no rule, so every pod may
// complete.
func Default() Config {
	return Config{
		SystemNamespaces:          `^(nvsentinel|kube-system|gpu-operator|gmp-system|network-operator|skyhook)$`,
		DeleteAfterTimeoutMinutes: 60,
		NotReadyTimeoutMinutes:    5,
	}
}

// Validate joins all problems, each with its key.
func (c Config) Validate() error {
	_, err := c.Compile()
	return err
}

// Compile turns the file's shape into a Policy; the error joins all problems,
// each with its key.
func (c Config) Compile() (Policy, error) {
	p := Policy{
		PartialDrain: c.PartialDrainEnabled,
		DeleteAfter:  time.Duration(c.DeleteAfterTimeoutMinutes) * time.Minute,
		NotReady:     time.Duration(c.NotReadyTimeoutMinutes) * time.Minute,
	}
	var problems []error
	var err error
	if p.Grace, err = seconds(c.EvictionTimeoutInSeconds); err != nil {
		problems = append(problems, fmt.Errorf("evictionTimeoutInSeconds: %w", err))
	}
	if c.SystemNamespaces != "" {
		if p.system, err = regexp.Compile(c.SystemNamespaces); err != nil {
			problems = append(problems, fmt.Errorf("systemNamespaces: %w", err))
		}
	}
	if c.DeleteAfterTimeoutMinutes < 1 {
		problems = append(problems, fmt.Errorf("deleteAfterTimeoutMinutes: %d is less than 1", c.DeleteAfterTimeoutMinutes))
	}
	if c.NotReadyTimeoutMinutes < 1 {
		problems = append(problems, fmt.Errorf("notReadyTimeoutMinutes: %d is less than 1", c.NotReadyTimeoutMinutes))
	}
	problems = append(problems, checkRules(c.UserNamespaces)...)
	p.rules = bySpecificity(c.UserNamespaces)
	problems = append(problems, checkOwners(c.OwnerKinds)...)
	p.owners = ownersInOrder(c.OwnerKinds)
	return p, errors.Join(problems...)
}

func seconds(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number of seconds above 0", s)
	}
	return time.Duration(n) * time.Second, nil
}

func checkRules(rules []NamespaceRule) []error {
	var problems []error
	first := map[string]int{}
	for i, r := range rules {
		if r.Name == "" {
			problems = append(problems, fmt.Errorf("userNamespaces[%d].name: is empty", i))
		} else if _, err := path.Match(r.Name, ""); err != nil {
			problems = append(problems, fmt.Errorf("userNamespaces[%d].name: %q is not a glob", i, r.Name))
		}
		if !slices.Contains(Modes(), r.Mode) {
			problems = append(problems, fmt.Errorf("userNamespaces[%d].mode: %q is not one of %v", i, r.Mode, Modes()))
		}
		if before, again := first[r.Name]; again {
			problems = append(problems, fmt.Errorf("userNamespaces[%d].name: %q is already named by userNamespaces[%d]", i, r.Name, before))
		} else {
			first[r.Name] = i
		}
	}
	return problems
}

// Policy is the compiled configuration. The zero Policy leaves every pod to
// complete.
type Policy struct {
	// Grace is the grace period of evictions; 0 is the pod's own.
	Grace time.Duration
	// DeleteAfter is the deadline of DeleteAfterTimeout, from the fault.
	DeleteAfter time.Duration
	// NotReady is how long a pod may be not ready, or stay after the end of its
	// grace period, before it counts as lost; 0 is for ever.
	NotReady time.Duration
	// PartialDrain: COMPONENT_RESET asks for the pods of its GPU only.
	PartialDrain bool

	rules  []NamespaceRule // the most specific first
	owners []OwnerRule     // the first match counts
	system *regexp.Regexp
}

// IsSystem reports whether the pods of a namespace are left alone.
func (p Policy) IsSystem(namespace string) bool {
	return p.system != nil && p.system.MatchString(namespace)
}

// ModeOf is the mode of a namespace by the most specific rule that matches: an
// exact name before a glob, among globs the one with the longer literal prefix,
// then with more literal characters, then the one written first. A namespace
// that no rule matches has UnmatchedMode.
func (p Policy) ModeOf(namespace string) (Mode, Reason) {
	for _, r := range p.rules {
		if r.Name == namespace {
			return r.Mode, NamedByRule
		}
		if ok, err := path.Match(r.Name, namespace); err == nil && ok {
			if literals(r.Name) == 0 {
				return r.Mode, MatchedByAll
			}
			return r.Mode, MatchedByRule
		}
	}
	return UnmatchedMode, MatchedByNoRule
}

const globMeta = `*?[\`

func bySpecificity(rules []NamespaceRule) []NamespaceRule {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b NamespaceRule) int {
		return cmp.Or(
			boolFirst(isExact(a.Name), isExact(b.Name)),
			cmp.Compare(literalPrefix(b.Name), literalPrefix(a.Name)),
			cmp.Compare(literals(b.Name), literals(a.Name)),
		)
	})
	return sorted
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func isExact(glob string) bool { return !strings.ContainsAny(glob, globMeta) }

func literalPrefix(glob string) int {
	if i := strings.IndexAny(glob, globMeta); i >= 0 {
		return i
	}
	return len(glob)
}

func literals(glob string) int {
	return len(glob) - strings.Count(glob, "*") - strings.Count(glob, "?")
}
