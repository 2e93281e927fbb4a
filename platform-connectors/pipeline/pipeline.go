package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/admission"
)

// costLimit bounds one evaluation, so that no expression can stall the forwarder.
const costLimit = 1_000_000

// MetadataProviderID is the metadata key of the node's machine at its provider.
const MetadataProviderID = "providerID"

// Pipeline is a compiled configuration. It is safe for concurrent use.
type Pipeline struct {
	stages []string
	labels []string
	rules  []compiled
	// confirm are the rules of the stage Confirmation.
	confirm []confirmable
	config  Config
}

type compiled struct {
	Rule
	program cel.Program
}

// Node is what is known of an event's node; nil when it is not known.
type Node struct {
	ProviderID string
	Labels     map[string]string
}

// Applied is one field that a rule changed.
type Applied struct{ Rule, Field string }

// Notes describes what was done to one event.
type Notes struct {
	Applied []Applied
	// Failed are rules that could not be evaluated; they did not match.
	Failed []RuleError
	// NodeUnknown: labels were asked for and the node is not known.
	NodeUnknown bool
	// Waits is the rule by which the event waits to be confirmed, SecondOf names
	// those for which it is the second signal.
	Waits    *ConfirmRule
	SecondOf []string
	// Cut: the metadata had no space for all labels.
	Cut bool
}

// RuleError is a rule that could not be evaluated.
type RuleError struct {
	Rule string
	Err  error
}

// Compile checks a configuration and compiles its rules. Its errors name the
// stage, the rule and the place in the expression.
func Compile(c Config) (*Pipeline, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	env, err := cel.NewEnv(cel.Variable("event", cel.DynType), ext.Strings())
	if err != nil {
		return nil, fmt.Errorf("creating the CEL environment: %w", err)
	}
	p := &Pipeline{stages: c.Stages, labels: c.Metadata.AllowedLabels, config: c}
	var problems []error
	for i, r := range c.Overrides.Rules {
		program, err := compile(env, r.When)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: rules[%d] (%q).when: %w", StageOverrides, i, r.Name, err))
			continue
		}
		if c.Overrides.Enabled {
			p.rules = append(p.rules, compiled{r, program})
		}
	}
	confirm, err := compileConfirmation(env, c.Confirmation)
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	p.confirm = confirm
	return p, nil
}

func compile(env *cel.Env, expression string) (cel.Program, error) {
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, fmt.Errorf("the result type is %s, must be bool", t)
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
}

// Warnings returns which rules have an event acted upon, or clear a fault, because of text
// that programs can choose, and which stage has no effect.
func (p *Pipeline) Warnings() (out []string) {
	if p.config.Retired {
		out = append(out, fmt.Sprintf("pipeline: stage %s no longer has an effect, and its file is not read: "+
			"identical events are counted (--dedup-window), and syslog-health-monitor counts events that differ only in their text, "+
			"so remove the stage", StageRetired))
	}
	for i, r := range p.config.Overrides.Rules {
		if p.config.Overrides.Enabled && r.Override.acts() && record.ReadsMessage(r.When) {
			out = append(out, fmt.Sprintf("%s: rules[%d] (%q).when %s", StageOverrides, i, r.Name, record.MessageWarning))
		}
	}
	if !p.Confirms() {
		return out
	}
	for i, r := range p.config.Confirmation.Rules {
		if record.ReadsMessage(r.Second) {
			out = append(out, fmt.Sprintf("%s: rules[%d] (%q).second %s", StageConfirmation, i, r.Name, record.MessageWarning))
		}
	}
	return out
}

// acts reports whether an override makes more of an event than its publisher did, or ends a fault.
func (o Override) acts() bool {
	return o.IsFatal != nil && *o.IsFatal || o.IsHealthy != nil && *o.IsHealthy ||
		o.RecommendedAction != "" && o.RecommendedAction != string(record.ActionNone) || o.ProcessingStrategy == string(record.Process)
}

// Config is what the pipeline was compiled from.
func (p *Pipeline) Config() Config { return p.config }

// Idle reports whether there is no stage.
func (p *Pipeline) Idle() bool { return len(p.stages) == 0 }

// NeedsNode reports whether Apply can use the event's node.
func (p *Pipeline) NeedsNode() bool { return p.has(StageMetadata) }

// Confirms reports whether faults may have to be confirmed.
func (p *Pipeline) Confirms() bool { return p.has(StageConfirmation) && len(p.confirm) > 0 }

func (p *Pipeline) has(stage string) bool { return slices.Contains(p.stages, stage) }

// Apply changes an event as the stages define, in their order. The event given is not changed.
func (p *Pipeline) Apply(e record.Event, node *Node) (record.Event, Notes) {
	var notes Notes
	for _, s := range p.stages {
		switch s {
		case StageMetadata:
			e = p.augment(e, node, &notes)
		case StageOverrides:
			e = p.override(e, &notes)
		case StageConfirmation:
			e = p.applyConfirmation(e, &notes)
		}
	}
	return e, notes
}

// augment adds the node's provider id and labels. They replace the publisher's entries
// under their names, but never the keys that carry order and boot.
func (p *Pipeline) augment(e record.Event, node *Node, notes *Notes) record.Event {
	if node == nil {
		notes.NodeUnknown = true
		return e
	}
	metadata := maps.Clone(e.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	add := func(key, value string) {
		_, taken := metadata[key]
		switch {
		case value == "", slices.Contains(record.OrderKeys, key):
		case !taken && len(metadata) >= admission.MaxMetadata, len(value) > admission.MaxMetadataValue:
			notes.Cut = true
		default:
			metadata[key] = value
		}
	}
	add(MetadataProviderID, node.ProviderID)
	for _, label := range p.labels {
		add(label, node.Labels[label])
	}
	if len(metadata) > 0 {
		e.Metadata = metadata
	}
	return e
}

// override applies the first rule that matches.
func (p *Pipeline) override(e record.Event, notes *Notes) record.Event {
	if len(p.rules) == 0 {
		return e
	}
	inputs := inputs(e)
	for _, r := range p.rules {
		matched, err := r.matchesAll(inputs)
		if err != nil {
			notes.Failed = append(notes.Failed, RuleError{r.Name, err})
		}
		if matched {
			return r.change(e, notes)
		}
	}
	return e
}

// inputs are an event as the rules see it: with one code at a time. A rule about one code
// must not change the meaning of another code of the event.
func inputs(e record.Event) []map[string]any {
	if len(e.ErrorCode) < 2 {
		return []map[string]any{{"event": value(e)}}
	}
	out := make([]map[string]any, 0, len(e.ErrorCode))
	whole := value(e)
	for _, code := range e.ErrorCode {
		one := maps.Clone(whole)
		one["errorCode"] = []any{code}
		out = append(out, map[string]any{"event": one})
	}
	return out
}

// matchesAll reports whether the rule matches every input.
func (r compiled) matchesAll(inputs []map[string]any) (bool, error) {
	for _, input := range inputs {
		if matched, err := r.matches(input); err != nil || !matched {
			return false, err
		}
	}
	return true, nil
}

func (r compiled) matches(input map[string]any) (bool, error) {
	result, _, err := r.program.Eval(input)
	if err != nil {
		return false, err
	}
	b, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the result type is %s, must be bool", result.Type())
	}
	return b, nil
}

func (r compiled) change(e record.Event, notes *Notes) record.Event {
	applied := func(field string) { notes.Applied = append(notes.Applied, Applied{r.Name, field}) }
	o := r.Override
	if o.IsFatal != nil {
		e.IsFatal = *o.IsFatal
		applied("isFatal")
	}
	if o.IsHealthy != nil {
		e.IsHealthy = *o.IsHealthy
		applied("isHealthy")
	}
	if o.RecommendedAction != "" {
		if action, err := record.ParseAction(o.RecommendedAction); err == nil { // Validate has seen it
			e.RecommendedAction, e.CustomRecommendedAction = action, o.CustomRecommendedAction
			e.Metadata = maps.Clone(e.Metadata)
			delete(e.Metadata, record.MetadataUnknownAction) // the metadata no longer names what to do
			applied("recommendedAction")
		}
	}
	if o.ProcessingStrategy != "" {
		e.ProcessingStrategy = record.Strategy(o.ProcessingStrategy)
		applied("processingStrategy")
	}
	return e
}

// value is an event as the rules see it: wire names, enums by name.
func value(e record.Event) map[string]any {
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
		"id": e.ID, "nodeName": e.NodeName, "agent": e.Agent, "componentClass": e.ComponentClass, "checkName": e.CheckName,
		"isFatal": e.IsFatal, "isHealthy": e.IsHealthy, "message": e.Message, "errorCode": codes,
		"entitiesImpacted": entities, "metadata": metadata, "generatedTimestamp": e.GeneratedTimestamp,
		"recommendedAction": string(e.Action()), "customRecommendedAction": e.CustomRecommendedAction,
		"processingStrategy": string(e.ProcessingStrategy),
	}
}
