package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"unicode"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Functions are what a template of an object can call beside the language's own.
var Functions = template.FuncMap{
	// quote is a value as a text that YAML reads back unchanged, whatever is in it.
	"quote": func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
	// toJson is any value as JSON, which YAML reads as well.
	"toJson": toJSON,
}

// toJSON escapes what JSON leaves as it is and YAML takes for a line break or
// refuses.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	var out strings.Builder
	for _, r := range string(b) {
		if unicode.IsControl(r) || r == '\ufeff' || r == '\ufffe' || r == '\uffff' {
			fmt.Fprintf(&out, "\\u%04x", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String(), err
}

// Template is an object whose texts are templates. What a text inserts stays text,
// whatever is in it; one that is a single expression ending in toJson becomes the
// value itself.
type Template struct {
	object map[string]any
	texts  map[string]*template.Template // by their places
}

// ParseTemplate compiles all texts of an object; an error names the places of those
// that are no templates.
func ParseTemplate(object map[string]any) (*Template, error) {
	t := &Template{object: object, texts: map[string]*template.Template{}}
	var problems []error
	_, _ = visit(object, "", func(place, text string) (any, error) {
		if !strings.Contains(text, "{{") {
			return text, nil
		}
		one, err := template.New(place).Funcs(Functions).Option("missingkey=error").Parse(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", place, err))
			return text, nil
		}
		t.texts[place] = one
		return text, nil
	})
	return t, errors.Join(problems...)
}

// Render makes the object of data; an error names the text that failed.
func (t *Template) Render(data any) (map[string]any, error) {
	made, err := visit(t.object, "", func(place, text string) (any, error) {
		one, ok := t.texts[place]
		if !ok {
			return text, nil
		}
		var out bytes.Buffer
		if err := one.Execute(&out, data); err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if !isValue(one) {
			return out.String(), nil
		}
		var value any
		if err := utiljson.Unmarshal(out.Bytes(), &value); err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		return value, nil
	})
	if err != nil {
		return nil, err
	}
	object, _ := made.(map[string]any)
	return object, nil
}

// isValue says whether a template is nothing but an expression that ends in toJson.
func isValue(t *template.Template) bool {
	if len(t.Root.Nodes) != 1 {
		return false
	}
	action, ok := t.Root.Nodes[0].(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 {
		return false
	}
	last := action.Pipe.Cmds[len(action.Pipe.Cmds)-1]
	function, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && function.Ident == "toJson"
}

// visit copies a value with all its texts replaced.
func visit(v any, place string, replace func(place, text string) (any, error)) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			made, err := visit(v[key], place+"."+key, replace)
			if err != nil {
				return nil, err
			}
			out[key] = made
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			made, err := visit(v[i], fmt.Sprintf("%s[%d]", place, i), replace)
			if err != nil {
				return nil, err
			}
			out[i] = made
		}
		return out, nil
	case string:
		return replace(place, v)
	}
	return v, nil
}
