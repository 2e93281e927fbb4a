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

// Lookup is the one value at a path of an object, JSON's null included; an error says
// that the path is none, leads nowhere, or to several values.
func Lookup(obj *unstructured.Unstructured, path string) (any, error) {
	return lookup(obj.Object, path)
}

// CheckPath says why a path is none.
func CheckPath(path string) error {
	_, err := parse(path)
	return err
}
