// Package healthrule evaluates a Kubernetes object by rules: Healthy, Unhealthy
// or Unknown. It is pure: the object is read by the caller, who also reports when
// reading it failed, because a failed read is never an absent object.
package healthrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// Rule defines when an object is healthy. Exactly one of AlwaysHealthy,
// SingleConditionType and MultiMatch is set; an empty SingleConditionType
// counts as unset.
type Rule struct {
	// ObservedGenerationPath, when set, must hold metadata.generation before
	// anything else about the object is believed.
	ObservedGenerationPath string `json:"observedGenerationPath,omitempty" toml:"observedGenerationPath"`
	// AlwaysHealthy is Healthy as soon as the object exists.
	AlwaysHealthy *Always `json:"alwaysHealthy,omitempty" toml:"alwaysHealthy"`
	// SingleConditionType is Healthy when the condition is True, Unhealthy when
	// it is False.
	SingleConditionType string `json:"singleConditionType,omitempty" toml:"singleConditionType"`
	// MultiMatch is Unhealthy when any unhealthy matcher matches, else Healthy
	// when all healthy matchers do.
	MultiMatch *MultiMatch `json:"multiMatch,omitempty" toml:"multiMatch"`
}

// Always is the empty body of alwaysHealthy.
type Always struct{}

// MultiMatch holds the matchers of both verdicts.
type MultiMatch struct {
	Healthy   Matchers `json:"healthy" toml:"healthy"`
	Unhealthy Matchers `json:"unhealthy" toml:"unhealthy"`
}

// Matchers are tests on the object's conditions and fields.
type Matchers struct {
	// MatchConditions match entries of status.conditions.
	MatchConditions []ConditionMatcher `json:"matchConditions,omitempty" toml:"matchConditions"`
	// MatchFields match any field.
	MatchFields []FieldMatcher `json:"matchFields,omitempty" toml:"matchFields"`
}

// ConditionMatcher matches a condition by exact type and status.
type ConditionMatcher struct {
	// Type and Status are those of the condition.
	Type   string `json:"type" toml:"type"`
	Status string `json:"status" toml:"status"`
}

// Operator compares the value of a field.
type Operator string

// Operators of a field matcher.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// FieldMatcher matches the value at a path.
type FieldMatcher struct {
	// Key is the path of the field, Operator compares it with Values.
	Key      string   `json:"key" toml:"key"`
	Operator Operator `json:"operator" toml:"operator"`
	Values   []string `json:"values,omitempty" toml:"values"`
	// MessagePath leads to a text that explains the value to a person.
	MessagePath string `json:"messagePath,omitempty" toml:"messagePath"`
}

// Single is the rule that the shorthand `completeConditionType: X` stands for.
func Single(conditionType string) Rule { return Rule{SingleConditionType: conditionType} }

// Conditions is a multiMatch rule on conditions only, each given as type=status.
func Conditions(healthy, unhealthy []ConditionMatcher) Rule {
	return Rule{MultiMatch: &MultiMatch{
		Healthy:   Matchers{MatchConditions: healthy},
		Unhealthy: Matchers{MatchConditions: unhealthy},
	}}
}

// Resolve picks the one rule of a configuration that may give either a whole
// rule or the shorthand; both, or neither, is an error.
func Resolve(rule *Rule, completeConditionType string) (Rule, error) {
	switch {
	case rule != nil && completeConditionType != "":
		return Rule{}, errors.New("healthRule and completeConditionType are mutually exclusive, set one")
	case rule != nil:
		return *rule, rule.Validate()
	case completeConditionType != "":
		return Single(completeConditionType), nil
	}
	return Rule{}, errors.New("healthRule or completeConditionType is required")
}

// Validate joins every problem of the rule.
func (r Rule) Validate() error {
	var problems []error
	if n := r.variants(); n != 1 {
		problems = append(problems, fmt.Errorf("exactly one of alwaysHealthy, singleConditionType, multiMatch is required, %d are set", n))
	}
	if r.ObservedGenerationPath != "" {
		problems = append(problems, checkPath("observedGenerationPath", r.ObservedGenerationPath))
	}
	if m := r.MultiMatch; m != nil {
		problems = append(problems, m.Healthy.validate("multiMatch.healthy"), m.Unhealthy.validate("multiMatch.unhealthy"))
	}
	return errors.Join(problems...)
}

func (r Rule) variants() int {
	n := 0
	for _, set := range []bool{r.AlwaysHealthy != nil, r.SingleConditionType != "", r.MultiMatch != nil} {
		if set {
			n++
		}
	}
	return n
}

func (m Matchers) validate(at string) error {
	var problems []error
	if len(m.MatchConditions)+len(m.MatchFields) == 0 {
		problems = append(problems, fmt.Errorf("%s: at least one matcher is required", at))
	}
	for i, c := range m.MatchConditions {
		if c.Type == "" || c.Status == "" {
			problems = append(problems, fmt.Errorf("%s.matchConditions[%d]: type and status are required", at, i))
		}
	}
	for i, f := range m.MatchFields {
		problems = append(problems, f.validate(fmt.Sprintf("%s.matchFields[%d]", at, i)))
	}
	return errors.Join(problems...)
}

func (f FieldMatcher) validate(at string) error {
	problems := []error{checkPath(at+".key", f.Key)}
	switch f.Operator {
	case In, NotIn:
		if len(f.Values) == 0 {
			problems = append(problems, fmt.Errorf("%s: operator %s needs values", at, f.Operator))
		}
	case Exists, DoesNotExist:
		if len(f.Values) > 0 {
			problems = append(problems, fmt.Errorf("%s: operator %s takes no values", at, f.Operator))
		}
	default:
		problems = append(problems, fmt.Errorf("%s: operator %q is not one of In, NotIn, Exists, DoesNotExist", at, f.Operator))
	}
	if f.MessagePath != "" {
		problems = append(problems, checkPath(at+".messagePath", f.MessagePath))
	}
	return errors.Join(problems...)
}

func checkPath(at, path string) error {
	if err := CheckPath(path); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// Warnings names what is legal but probably not meant: DoesNotExist among the
// healthy matchers is true of an object that has no status yet, unless the
// generation gate holds it back.
func (r Rule) Warnings() []string {
	if r.MultiMatch == nil || r.ObservedGenerationPath != "" {
		return nil
	}
	var out []string
	for i, f := range r.MultiMatch.Healthy.MatchFields {
		if f.Operator == DoesNotExist && strings.Contains(f.Key, "status") {
			out = append(out, fmt.Sprintf("multiMatch.healthy.matchFields[%d]: DoesNotExist matches an object without status, set observedGenerationPath", i))
		}
	}
	return out
}

// errMissing means the path leads nowhere: a key is missing at some level, or
// no element passes a filter.
var errMissing = errors.New("not found")

// errSeveral means the path has more than one result.
var errSeveral = errors.New("more than one result")

// parse reads a Kubernetes JSONPath of exactly one expression. The braces and
// the leading dot are optional.
func parse(path string) (*jsonpath.JSONPath, error) {
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(path), "{"), "}")
	if strings.Trim(text, ". $") == "" {
		return nil, errors.New("path is empty")
	}
	if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "$") {
		text = "." + text
	}
	text = "{" + text + "}"
	tree, err := jsonpath.Parse("path", text)
	if err != nil {
		return nil, fmt.Errorf("parsing path %q: %w", path, err)
	}
	if err := oneExpression(tree.Root); err != nil {
		return nil, fmt.Errorf("parsing path %q: %w", path, err)
	}
	j := jsonpath.New("path").AllowMissingKeys(true)
	return j, j.Parse(text)
}

// oneExpression refuses text outside the braces, several braces and loops.
func oneExpression(root *jsonpath.ListNode) error {
	if len(root.Nodes) != 1 {
		return errors.New("exactly one expression is allowed")
	}
	list, ok := root.Nodes[0].(*jsonpath.ListNode)
	if !ok {
		return errors.New("not an expression")
	}
	for _, n := range list.Nodes {
		if n.Type() == jsonpath.NodeIdentifier {
			return errors.New("range and end are not allowed")
		}
	}
	return nil
}

// lookup evaluates path on obj: the one result, errMissing, errSeveral, or an
// evaluation error. A null value is a result.
func lookup(obj map[string]any, path string) (any, error) {
	j, err := parse(path)
	if err != nil {
		return nil, err
	}
	sets, err := j.FindResults(obj)
	if err != nil {
		return nil, fmt.Errorf("evaluating path %q: %w", path, err)
	}
	var found []any
	for _, set := range sets {
		for _, v := range set {
			if !v.IsValid() || !v.CanInterface() {
				return nil, fmt.Errorf("evaluating path %q: unreadable value", path)
			}
			found = append(found, v.Interface())
		}
	}
	switch len(found) {
	case 0:
		return nil, errMissing
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("evaluating path %q: %w", path, errSeveral)
}

// scalar is the canonical text of JSON's strings, booleans and numbers: true, false,
// the shortest decimal. ok is false for null, objects and lists.
func scalar(v any) (text string, ok bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case bool:
		return strconv.FormatBool(x), true
	case int64:
		return strconv.FormatInt(x, 10), true
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), true
	}
	return "", false
}

// integer is the value as a whole number; ok is false for everything that is
// not a number, or has a fraction.
func integer(v any) (n int64, ok bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int64(x), true
		}
	}
	return 0, false
}

// display is a value as text for a person: scalars as they are, the rest as JSON.
func display(v any) string {
	if s, ok := scalar(v); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// Lookup is the one value at a path of an object, JSON's null included; an error means
// that the path is none, leads nowhere, or to several values.
func Lookup(obj *unstructured.Unstructured, path string) (any, error) {
	return lookup(obj.Object, path)
}

// CheckPath returns why a path is none.
func CheckPath(path string) error {
	_, err := parse(path)
	return err
}
