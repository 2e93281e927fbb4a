package policy

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Failure is the part of an evaluation that failed. It is the label value of the errors'
// counter.
type Failure string

// Failures of an evaluation.
const (
	CELError             Failure = "cel_error"
	LookupError          Failure = "lookup_error"
	NodeAssociationError Failure = "node_association_error"
)

// Error is a failed evaluation. Nothing follows from it about the object.
type Error struct {
	Failure Failure
	Err     error
}

// Error is the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Runner evaluates a program; the monitor's has a deadline. nil is the program's
// own Eval, which the cost limit alone bounds.
type Runner func(p cel.Program, variables map[string]any) (ref.Val, error)

// Match is the answer of a predicate.
type Match struct {
	Matched bool
	// Flip is the earliest time after now at which a comparison of an age,
	// now - T > D, changes its result; zero when none will.
	Flip time.Time
}

// Match evaluates the predicate on an object, as decoded JSON.
func (p *Policy) Match(object map[string]any, now time.Time, run Runner) (Match, error) {
	f := &flips{now: now}
	value, err := p.predicate.run(object, f, run)
	if err != nil {
		return Match{}, classify(err, CELError)
	}
	b, ok := value.(types.Bool)
	if !ok {
		return Match{}, &Error{CELError, fmt.Errorf("the predicate returned %s, not bool", value.Type())}
	}
	return Match{Matched: bool(b), Flip: f.next}, nil
}

// Node is the name of the node that an object is about.
func (p *Policy) Node(object map[string]any, now time.Time, run Runner) (string, error) {
	name := nameOf(object)
	if p.node != nil {
		value, err := p.node.run(object, &flips{now: now}, run)
		if err != nil {
			return "", classify(err, NodeAssociationError)
		}
		s, ok := value.(types.String)
		if !ok {
			return "", &Error{NodeAssociationError, fmt.Errorf("the node association returned %s, not string", value.Type())}
		}
		name = string(s)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", &Error{NodeAssociationError, fmt.Errorf("%q is not a valid node name: %s", name, problems[0])}
	}
	return name, nil
}

func classify(err error, otherwise Failure) error {
	if errors.Is(err, errLookup) {
		return &Error{LookupError, err}
	}
	return &Error{otherwise, err}
}

func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

func (p *program) run(object map[string]any, f *flips, run Runner) (ref.Val, error) {
	variables := map[string]any{resourceName: object, nowName: f.now, flipsName: f}
	if run != nil {
		return run(p.Program, variables)
	}
	value, _, err := p.Eval(variables)
	return value, err
}

// flips collects when comparisons of ages change during one evaluation.
type flips struct{ now, next time.Time }

// compared takes note of one comparison of an age with a bound. It changes when
// the age has passed the bound, a nanosecond later than it reaches it for > and
// <=, which is the same to a scheduler.
func (f *flips) compared(age, bound time.Duration) {
	if age > bound {
		return
	}
	at := f.now.Add(bound - age + time.Nanosecond)
	if f.next.IsZero() || at.Before(f.next) {
		f.next = at
	}
}

// ages finds the comparisons of now - T with something; the value is true if the age stands
// left of the operator.
func ages(root ast.Expr) map[int64]bool {
	found := map[int64]bool{}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		default:
			return
		}
		for i, side := range call.Args() {
			if isAge(side) {
				found[e.ID()] = i == 0
			}
		}
	}))
	return found
}

func isAge(e ast.Expr) bool {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Subtract {
		return false
	}
	first := e.AsCall().Args()[0]
	return first.Kind() == ast.IdentKind && first.AsIdent() == nowName
}

// watchAges makes the comparisons of ages take note of when they change.
func watchAges(ages map[int64]bool) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		left, ok := ages[i.ID()]
		call, isCall := i.(interpreter.InterpretableCall)
		if !ok || !isCall || len(call.Args()) != 2 {
			return i, nil
		}
		return &comparison{InterpretableCall: call, ageLeft: left}, nil
	}
}

// comparison is a comparison of an age that takes note.
type comparison struct {
	interpreter.InterpretableCall
	ageLeft bool
}

// Exec compares.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	result := c.InterpretableCall.Exec(frame)
	note, ok := frame.ResolveName(flipsName)
	f, isFlips := note.(*flips)
	if !ok || !isFlips {
		return result
	}
	left, ok1 := c.Args()[0].Exec(frame).(types.Duration)
	right, ok2 := c.Args()[1].Exec(frame).(types.Duration)
	if ok1 && ok2 {
		if !c.ageLeft {
			left, right = right, left
		}
		f.compared(left.Duration, right.Duration)
	}
	return result
}

// Eval compares.
func (c *comparison) Eval(activation interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(activation, c.Exec)
}

// eventFields are the names that one version of the Events API gives to what the
// recorders of that and of the other version fill in.
type eventFields struct{ lastTimestamp, source, reporter string }

// eventKinds are the two versions of Kubernetes' Events.
var eventKinds = map[schema.GroupVersionKind]eventFields{
	{Version: "v1", Kind: "Event"}:                         {"lastTimestamp", "source", "reportingComponent"},
	{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: {"deprecatedLastTimestamp", "deprecatedSource", "reportingController"},
}

// Fields of an Event that both versions name alike.
const (
	eventTime         = "eventTime"
	reportingInstance = "reportingInstance"
)

// Normal is an object as expressions see it: an Event shows when it was seen last and who
// reported it, whichever recorder wrote it. The one that kubelets use leaves eventTime null
// and counts in lastTimestamp, the newer one leaves that null and counts in series;
// kubelets before 1.28 name themselves in the source alone. Other objects stay as they are.
// The object given is not changed.
func Normal(kind schema.GroupVersionKind, object map[string]any) map[string]any {
	fields, ok := eventKinds[kind]
	if !ok || object == nil {
		return object
	}
	out := maps.Clone(object)
	if at := lastSeen(object, fields); at != nil {
		out[eventTime], out[fields.lastTimestamp] = at, at
	}
	source, _ := object[fields.source].(map[string]any)
	for to, from := range map[string]string{fields.reporter: "component", reportingInstance: "host"} {
		if eventType, _ := object[to].(string); eventType == "" && source[from] != nil {
			out[to] = source[from]
		}
	}
	return out
}

// lastSeen is the latest of the times at which an Event was seen; the time of its creation
// if there is none; nil if it has no time at all.
func lastSeen(object map[string]any, fields eventFields) any {
	series, _ := object["series"].(map[string]any)
	metadata, _ := object[metadataKey].(map[string]any)
	var latest time.Time
	var out any
	for _, timestamps := range []any{series["lastObservedTime"], object[fields.lastTimestamp], object[eventTime]} {
		text, _ := timestamps.(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(latest) {
			latest, out = at, timestamps
		}
	}
	if out == nil {
		return metadata["creationTimestamp"]
	}
	return out
}
