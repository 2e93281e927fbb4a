// Package rulematch decides which rule sets match a health event on a node and
// merges what they ask for, deterministically by priority and order.
package rulematch

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Set is one rule set of the configuration file.
type Set struct {
	// Enabled lets the set count.
	Enabled bool `toml:"enabled"`
	// Version is for people.
	Version string `toml:"version"`
	// Name appears in decisions, labels and messages.
	Name string `toml:"name"`
	// Priority: of sets that ask for one taint or label, the highest counts.
	Priority int `toml:"priority"`
	// Match.All: every rule must hold. Match.Any: one must hold. With both
	// groups given, either group matches the set.
	Match Match `toml:"match"`
	// Taint is put on the node, if given.
	Taint *record.Taint `toml:"taint"`
	// Label is put on the node, if given.
	Label *record.Label `toml:"label"`
	// Cordon decides whether the node is cordoned.
	Cordon Cordon `toml:"cordon"`
}

// Match groups the rules of a set.
type Match struct {
	// All have to hold.
	All []Rule `toml:"all"`
	// Any one has to hold.
	Any []Rule `toml:"any"`
}

// Rule is one CEL expression over `event` and `node`.
type Rule struct {
	// Kind is HealthEvent or Node.
	Kind string `toml:"kind"`
	// Expression returns a bool.
	Expression string `toml:"expression"`
}

// Cordon asks for the node to be made unschedulable.
type Cordon struct {
	// ShouldCordon cordons the node.
	ShouldCordon bool `toml:"shouldCordon"`
}

// Default is the built-in rule sets: fatal events of the suite's own monitors
// cordon the node.
func Default() []Set {
	set := func(name, expression string) Set {
		return Set{
			Enabled: true, Version: "1", Name: name, Cordon: Cordon{ShouldCordon: true},
			Match: Match{All: []Rule{{Kind: "HealthEvent", Expression: expression}}},
		}
	}
	return []Set{
		set("GPU fatal error ruleset", `event.agent == "gpu-health-monitor" && event.componentClass == "GPU" && event.isFatal`),
		set("CSP health monitor fatal error ruleset", `event.agent == "csp-health-monitor" && event.checkName == "CSPMaintenance" && event.isFatal`),
		set("Syslog fatal error ruleset", `event.agent == "syslog-health-monitor" && event.componentClass in ["GPU", "NIC"] && event.isFatal`),
		set("Kubernetes object monitor fatal error ruleset", `event.agent == "kubernetes-object-monitor" && event.isFatal`),
		set("Node health check fatal error ruleset", `event.agent == "node-health-check" && event.isFatal`),
	}
}

// Validate checks everything but the expressions, which Compile checks.
func Validate(sets []Set) error {
	var problems []error
	names := map[string]bool{}
	for i, s := range sets {
		at := fmt.Sprintf("ruleSets[%d] (%q)", i, s.Name)
		if s.Name == "" {
			problems = append(problems, fmt.Errorf("%s.name is empty", at))
		}
		if names[s.Name] {
			problems = append(problems, fmt.Errorf("%s.name is a duplicate", at))
		}
		names[s.Name] = true
		problems = append(problems, reserved(s, at))
		if len(s.Match.All)+len(s.Match.Any) == 0 {
			problems = append(problems, fmt.Errorf("%s.match has no rules: set all or any", at))
		}
		problems = append(problems, validMarks(s, at))
		if s.Taint == nil && s.Label == nil && !s.Cordon.ShouldCordon {
			problems = append(problems, fmt.Errorf("%s has no effect: set cordon.shouldCordon, taint or label", at))
		}
	}
	return errors.Join(problems...)
}

// validMarks checks what a set asks for as the API server does, which would
// refuse every patch of a Node with it.
func validMarks(s Set, at string) error {
	var problems []error
	check := func(what, value string, valid func(string) []string) {
		for _, why := range valid(value) {
			problems = append(problems, fmt.Errorf("%s.%s %q: %s", at, what, value, why))
		}
	}
	if t := s.Taint; t != nil {
		check("taint.key", t.Key, validation.IsQualifiedName)
		check("taint.value", t.Value, validation.IsValidLabelValue)
		if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) {
			problems = append(problems, fmt.Errorf("%s.taint.effect %q is not NoSchedule, PreferNoSchedule or NoExecute", at, t.Effect))
		}
	}
	if l := s.Label; l != nil {
		check("label.key", l.Key, validation.IsQualifiedName)
		check("label.value", l.Value, validation.IsValidLabelValue)
	}
	return errors.Join(problems...)
}
