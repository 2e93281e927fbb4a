package healthrule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// State is the evaluated health of an object.
type State string

// States. Unknown means wait: nothing is read from the object, nothing new is
// written.
const (
	Healthy   State = "Healthy"
	Unhealthy State = "Unhealthy"
	Unknown   State = "Unknown"
)

// Reasons of a result. A single-condition rule gives "<type>Condition".
const (
	// ReasonReadError: the object could not be read, so its state is Unknown. The read is retried. Action: none if it
	// ends by itself. Otherwise check that the API server responds and that the service account has `get` on the
	// kind.
	ReasonReadError = "ReadError"
	// ReasonNoStampedObject: the health rule is `alwaysHealthy` and the object does not exist yet, so its state is
	// Unknown. Action: none.
	ReasonNoStampedObject = "NoStampedObject"
	// ReasonUnknown: the object does not exist yet, so its state is Unknown. Action: none.
	ReasonUnknown = "Unknown"
	// ReasonGenerationMismatch: the controller of the object has not processed its newest generation
	// (`observedGenerationPath`), so the state is Unknown. Action: none at first. If it lasts, check that controller
	// and the path.
	ReasonGenerationMismatch = "ObservedGenerationMismatch"
	// ReasonAlwaysHealthy: the health rule is `alwaysHealthy`, so an object that exists is Healthy. Action: none.
	ReasonAlwaysHealthy = "AlwaysHealthy"
	// ReasonMatchedCondition: a condition of the object matches the health rule and gives the state. Action: none if
	// Healthy. If Unhealthy, read the message of that condition.
	ReasonMatchedCondition = "MatchedCondition"
	// ReasonMatchedField: a field of the object matches the health rule and gives the state. Action: none if Healthy.
	// If Unhealthy, read the value in the message.
	ReasonMatchedField = "MatchedField"
	// ReasonNoMatches: no matcher of the health rule holds yet, so the state is Unknown. Action: none at first. If it
	// lasts, check the controller of the object. If the message names a path, correct the health rule.
	ReasonNoMatches = "NoMatchesFulfilled"
	// ReasonNoRule: no health rule is set, so an object that exists is Healthy. Action: none.
	ReasonNoRule = "NoRule"
	// ReasonUnknownTimeout: the state was Unknown for longer than the timeout allows, so it counts as Unhealthy.
	// Action: find out why the controller of the object does not finish it. If the object needs more time, increase
	// the timeout.
	ReasonUnknownTimeout = "UnknownTimeout"
)

// Result is a state with its reason and a text for a person.
type Result struct {
	State   State
	Reason  string
	Message string
}

// Evaluate evaluates obj by rule. A nil obj with a nil readErr is an object that
// is certainly absent; a readErr makes the result Unknown whatever else is
// given. A nil rule checks existence only.
func Evaluate(obj *unstructured.Unstructured, rule *Rule, readErr error) Result {
	if readErr != nil {
		return Result{Unknown, ReasonReadError, readErr.Error()}
	}
	if obj == nil || obj.Object == nil {
		if rule != nil && rule.AlwaysHealthy != nil {
			return Result{State: Unknown, Reason: ReasonNoStampedObject}
		}
		return Result{State: Unknown, Reason: ReasonUnknown}
	}
	if rule == nil {
		return Result{State: Healthy, Reason: ReasonNoRule}
	}
	if message, ok := generationObserved(obj.Object, rule.ObservedGenerationPath); !ok {
		return Result{Unknown, ReasonGenerationMismatch, message}
	}
	switch {
	case rule.AlwaysHealthy != nil:
		return Result{State: Healthy, Reason: ReasonAlwaysHealthy}
	case rule.SingleConditionType != "":
		return single(conditions(obj.Object), rule.SingleConditionType)
	case rule.MultiMatch != nil:
		return multi(obj.Object, *rule.MultiMatch)
	}
	return Result{State: Unknown, Reason: ReasonNoMatches}
}

// After turns a result that stayed Unknown for age into Unhealthy when age
// exceeds timeout; a timeout of 0 waits for ever.
func (r Result) After(age, timeout time.Duration) Result {
	if r.State != Unknown || timeout <= 0 || age <= timeout {
		return r
	}
	message := fmt.Sprintf("no result within %s", timeout)
	if r.Message != "" {
		message += ", most recently: " + r.Message
	}
	return Result{Unhealthy, ReasonUnknownTimeout, message}
}

// generationObserved is the gate before every rule: the value at path and
// metadata.generation are both integers and equal.
func generationObserved(obj map[string]any, path string) (string, bool) {
	if path == "" {
		return "", true
	}
	observed, err := lookup(obj, path)
	seen := display(observed)
	if err != nil {
		seen = "<" + err.Error() + ">"
	}
	generation, found, _ := unstructured.NestedFieldNoCopy(obj, "metadata", "generation")
	current := "<missing>"
	if found {
		current = display(generation)
	}
	o, okObserved := integer(observed)
	g, okCurrent := integer(generation)
	if err == nil && okObserved && okCurrent && o == g {
		return "", true
	}
	return fmt.Sprintf("observed generation at [%s] is %s, generation is %s", path, seen, current), false
}

// Condition is what a rule reads of an object's status condition.
type Condition struct{ Type, Status, Reason, Message string }

// ConditionOf finds the first status condition of a type.
func ConditionOf(obj *unstructured.Unstructured, conditionType string) (Condition, bool) {
	if obj == nil {
		return Condition{}, false
	}
	return first(conditions(obj.Object), conditionType)
}

// conditions reads .status.conditions leniently: what is not a list of objects
// with a type is as if it were not there.
func conditions(obj map[string]any) []Condition {
	raw, _, _ := unstructured.NestedFieldNoCopy(obj, "status", "conditions")
	list, _ := raw.([]any)
	var out []Condition
	for _, x := range list {
		m, ok := x.(map[string]any)
		if !ok {
			continue
		}
		c := Condition{Type: text(m["type"]), Status: text(m["status"]), Reason: text(m["reason"]), Message: text(m["message"])}
		if c.Type != "" {
			out = append(out, c)
		}
	}
	return out
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func first(list []Condition, conditionType string) (Condition, bool) {
	i := slices.IndexFunc(list, func(c Condition) bool { return c.Type == conditionType })
	if i < 0 {
		return Condition{}, false
	}
	return list[i], true
}

func single(list []Condition, conditionType string) Result {
	reason := conditionType + "Condition"
	c, ok := first(list, conditionType)
	if !ok {
		return Result{Unknown, reason, fmt.Sprintf("condition with type [%s] not found on resource status", conditionType)}
	}
	switch c.Status {
	case "True":
		return Result{Healthy, reason, c.Message}
	case "False":
		return Result{Unhealthy, reason, c.Message}
	}
	return Result{Unknown, reason, c.Message}
}

// match is one matcher applied to an object.
type match struct {
	ok      bool
	reason  string
	message string
	err     error
}

// multi gives Unhealthy for any unhealthy match, else Healthy when all healthy
// matchers hold. Errors of paths are named in the message of an Unknown.
func multi(obj map[string]any, rule MultiMatch) Result {
	unhealthy := apply(obj, rule.Unhealthy)
	for _, m := range unhealthy {
		if m.ok {
			return Result{Unhealthy, m.reason, m.message}
		}
	}
	healthy := apply(obj, rule.Healthy)
	if len(healthy) > 0 && !slices.ContainsFunc(healthy, func(m match) bool { return !m.ok }) {
		return Result{Healthy, healthy[0].reason, healthy[0].message}
	}
	var problems []string
	for _, m := range append(unhealthy, healthy...) {
		if m.err != nil {
			problems = append(problems, m.err.Error())
		}
	}
	return Result{Unknown, ReasonNoMatches, strings.Join(problems, ", ")}
}

// apply tests all matchers, conditions before fields, in list order.
func apply(obj map[string]any, rule Matchers) []match {
	var out []match
	list := conditions(obj)
	for _, c := range rule.MatchConditions {
		out = append(out, matchCondition(list, c))
	}
	for _, f := range rule.MatchFields {
		out = append(out, matchField(obj, f))
	}
	return out
}

// matchCondition looks at the first condition of the type, as upstream does.
func matchCondition(list []Condition, want ConditionMatcher) match {
	c, ok := first(list, want.Type)
	if !ok || c.Status != want.Status {
		return match{}
	}
	return match{ok: true, reason: ReasonMatchedCondition, message: fmt.Sprintf("condition status: %s, message: %s", c.Status, c.Message)}
}

func matchField(obj map[string]any, f FieldMatcher) match {
	value, err := lookup(obj, f.Key)
	missing := errors.Is(err, errMissing)
	if err != nil && !missing {
		return match{err: err}
	}
	if !matches(f, value, missing) {
		return match{}
	}
	return match{ok: true, reason: ReasonMatchedField, message: fieldMessage(obj, f, value, missing)}
}

// matches is the operator table: null exists for nobody but NotIn, a missing
// path only satisfies DoesNotExist.
func matches(f FieldMatcher, value any, missing bool) bool {
	canonical, isScalar := scalar(value)
	listed := isScalar && slices.Contains(f.Values, canonical)
	switch f.Operator {
	case In:
		return !missing && listed
	case NotIn:
		return !missing && !listed
	case Exists:
		return !missing && value != nil
	case DoesNotExist:
		return missing || value == nil
	}
	return false
}

func fieldMessage(obj map[string]any, f FieldMatcher, value any, missing bool) string {
	shown := display(value)
	if missing {
		shown = "<error retrieving field value>"
	}
	if f.MessagePath == "" {
		return "field value: " + shown
	}
	explained := fmt.Sprintf("unknown, error retrieving message path [%s]", f.MessagePath)
	if v, err := lookup(obj, f.MessagePath); err == nil {
		explained = display(v)
	}
	return fmt.Sprintf("field value: %s, message: %s", shown, explained)
}
