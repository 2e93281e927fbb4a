package rulematch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// costLimit bounds one evaluation, so that no expression can stall the evaluator.
const costLimit = 1_000_000

// Rules are compiled rule sets, safe for concurrent use.
type Rules struct{ sets []compiled }

type compiled struct {
	Set
	order int
	all   []program
	any   []program
}

type program struct {
	text string
	cel.Program
}

// Ruling is what the matching rule sets ask for, merged.
type Ruling struct {
	// Names of the sets that matched, highest priority first.
	Names   []string
	Effects record.Effects
	// Errors are evaluation errors: what fails neither matches nor does not.
	Errors []error
}

// Matched reports whether any set matched.
func (r Ruling) Matched() bool { return len(r.Names) > 0 }

// Undecided reports whether no set matched and some could not be evaluated: one
// of them might have matched.
func (r Ruling) Undecided() bool { return !r.Matched() && len(r.Errors) > 0 }

// Compile checks and compiles the enabled sets once. Errors name the set, the
// rule and the position in the expression.
func Compile(sets []Set) (*Rules, error) {
	if err := Validate(sets); err != nil {
		return nil, err
	}
	env, err := newEnvironments()
	if err != nil {
		return nil, fmt.Errorf("creating the CEL environment: %w", err)
	}
	rules := &Rules{}
	var problems []error
	for i, s := range sets {
		c := compiled{Set: s, order: i}
		all, errAll := compile(env, s.Match.All, fmt.Sprintf("ruleSets[%d] (%q).match.all", i, s.Name))
		anyOf, errAny := compile(env, s.Match.Any, fmt.Sprintf("ruleSets[%d] (%q).match.any", i, s.Name))
		c.all, c.any = all, anyOf
		problems = append(problems, errAll, errAny)
		if s.Enabled {
			rules.sets = append(rules.sets, c)
		}
	}
	slices.SortStableFunc(rules.sets, func(a, b compiled) int { return cmp.Compare(b.Priority, a.Priority) })
	return rules, errors.Join(problems...)
}

// Warnings returns which rules of enabled sets act on text that programs can choose.
func Warnings(sets []Set) (out []string) {
	for i, s := range sets {
		for list, rules := range map[string][]Rule{"all": s.Match.All, "any": s.Match.Any} {
			for j, r := range rules {
				if s.Enabled && record.ReadsMessage(r.Expression) {
					out = append(out, fmt.Sprintf("ruleSets[%d] (%q).match.%s[%d].expression %s", i, s.Name, list, j, record.MessageWarning))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func compile(env environments, rules []Rule, at string) ([]program, error) {
	var out []program
	var problems []error
	for i, r := range rules {
		if r.Kind != "HealthEvent" && r.Kind != "Node" {
			problems = append(problems, fmt.Errorf("%s[%d].kind %q is not HealthEvent or Node", at, i, r.Kind))
			continue
		}
		p, err := env.compile(r.Expression)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s[%d].expression: %w", at, i, err))
			continue
		}
		out = append(out, program{text: fmt.Sprintf("%s[%d]", at, i), Program: p})
	}
	return out, errors.Join(problems...)
}

// Decide evaluates every enabled set on an event and its node (the Node object
// without status, as decoded JSON; nil when there is none).
func (r *Rules) Decide(event record.Event, node map[string]any) Ruling {
	input := map[string]any{"event": eventValue(event), "node": node}
	var out Ruling
	var hits []compiled
	for _, s := range r.sets {
		matched, errs := s.matches(input)
		out.Errors = append(out.Errors, errs...)
		if matched {
			hits = append(hits, s)
			out.Names = append(out.Names, s.Name)
		}
	}
	out.Effects = merge(hits)
	return out
}

func (c compiled) matches(input map[string]any) (bool, []error) {
	var errs []error
	holds := func(p program) bool {
		value, _, err := p.Eval(input)
		if err != nil && strings.Contains(err.Error(), absentKey) {
			return false
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("evaluating %s: %w", p.text, err))
			return false
		}
		b, ok := value.Value().(bool)
		if !ok {
			errs = append(errs, fmt.Errorf("evaluating %s: got %s, not bool", p.text, value.Type()))
		}
		return ok && b
	}
	all := len(c.all) > 0 && !slices.ContainsFunc(c.all, func(p program) bool { return !holds(p) })
	return all || slices.ContainsFunc(c.any, holds), errs
}

// merge combines the effects of sets sorted by falling priority: any cordon
// cordons; of taints with one key and value, and of labels with one key, the
// first (highest priority, then first in the file) wins.
func merge(hits []compiled) record.Effects {
	var out record.Effects
	for _, s := range hits {
		out.Cordon = out.Cordon || s.Cordon.ShouldCordon
		if t := s.Taint; t != nil && !slices.ContainsFunc(out.Taints, func(x record.Taint) bool { return x.Key == t.Key && x.Value == t.Value }) {
			out.Taints = append(out.Taints, *t)
		}
		if l := s.Label; l != nil && !slices.ContainsFunc(out.Labels, func(x record.Label) bool { return x.Key == l.Key }) {
			out.Labels = append(out.Labels, *l)
		}
	}
	return out
}

// eventValue is the event as rule expressions see it: wire field names, enum
// numbers as in the predecessor, and the enum names beside them.
func eventValue(e record.Event) map[string]any {
	entities := make([]any, 0, len(e.EntitiesImpacted))
	for _, x := range e.EntitiesImpacted {
		entities = append(entities, map[string]any{"entityType": x.EntityType, "entityValue": x.EntityValue})
	}
	codes := make([]any, 0, len(e.ErrorCode))
	for _, c := range e.ErrorCode {
		codes = append(codes, c)
	}
	metadata := make(map[string]any, len(e.Metadata))
	for k, v := range e.Metadata {
		metadata[k] = v
	}
	return map[string]any{
		"version": int64(e.Version), "agent": e.Agent, "componentClass": e.ComponentClass, "checkName": e.CheckName,
		"isFatal": e.IsFatal, "isHealthy": e.IsHealthy, "message": e.Message, "errorCode": codes,
		"entitiesImpacted": entities, "metadata": metadata, "nodeName": e.NodeName, "id": e.ID,
		"generatedTimestamp": e.GeneratedTimestamp, "customRecommendedAction": e.CustomRecommendedAction,
		"recommendedAction": int64(record.ActionNumber(e.Action())), "recommendedActionName": string(e.Action()),
		"processingStrategy": int64(record.StrategyNumber(e.ProcessingStrategy)), "processingStrategyName": string(e.ProcessingStrategy),
		"quarantineOverrides": overrideValue(e.QuarantineOverrides), "drainOverrides": overrideValue(e.DrainOverrides),
	}
}

func overrideValue(o *record.Override) any {
	if o == nil {
		return nil
	}
	return map[string]any{"force": o.Force, "skip": o.Skip}
}
