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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
)

// Marks on a rendered object.
const (
	// DefinitionAnnotation is the digest of the definition that was written last.
	DefinitionAnnotation = "nvsentinel.dgxc.nvidia.com/definition"
	// GenerationAnnotation is the object's generation before that.
	GenerationAnnotation = "nvsentinel.dgxc.nvidia.com/definition-over"
	// SlotAnnotation names the slot for which the object was rendered.
	SlotAnnotation = "nvsentinel.dgxc.nvidia.com/slot"
)

// Definition is an object as it was submitted, and as the API server made it.
type Definition struct {
	// Digest of Submitted; the object bears it as long as nobody takes it off.
	Digest string `json:"digest"`
	// InputDigest is that of the values the definition was made of.
	InputDigest string `json:"inputDigest,omitempty"`
	// Submitted is the object as JSON, with labels, annotations and name, without status.
	Submitted string `json:"submitted"`
	// Returned is what the API server made of it, as JSON, without metadata and status;
	// empty until that was seen.
	Returned string `json:"returned,omitempty"`
	// Generation of the object that the definition made; 0 where it has none.
	Generation int64 `json:"generation,omitempty"`
}

// Define makes the definition of a rendered object for a slot, out of the values of
// its inputs. What a template states of the status or of what the API server keeps in
// the metadata is left out. An error is the template's: the object is none.
func Define(rendered *unstructured.Unstructured, slot string, inputs map[string]any) (Definition, error) {
	if rendered == nil || rendered.GetKind() == "" || rendered.GetAPIVersion() == "" {
		return Definition{}, errors.New("is not an object: apiVersion and kind are required")
	}
	o := &unstructured.Unstructured{Object: maps.Clone(rendered.Object)}
	delete(o.Object, "status")
	o.Object["metadata"] = map[string]any{}
	o.SetName(rendered.GetName())
	o.SetNamespace(rendered.GetNamespace())
	o.SetLabels(rendered.GetLabels())
	o.SetOwnerReferences(rendered.GetOwnerReferences())
	marks := maps.Clone(rendered.GetAnnotations())
	if marks == nil {
		marks = map[string]string{}
	}
	delete(marks, DefinitionAnnotation)
	marks[SlotAnnotation] = slot
	o.SetAnnotations(marks)
	text, err := json.Marshal(o.Object)
	if err != nil {
		return Definition{}, fmt.Errorf("encoding the object: %w", err)
	}
	from, err := Digest(inputs)
	if err != nil {
		return Definition{}, fmt.Errorf("hashing the inputs: %w", err)
	}
	return Definition{Digest: digestOf(text), InputDigest: from, Submitted: string(text)}, nil
}

// Object is the submitted object with its marks, to be written over one of that
// generation; 0 is none.
func (d Definition) Object(over int64) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(d.Submitted)); err != nil {
		return nil, fmt.Errorf("reading definition %s: %w", d.Digest, err)
	}
	marks := o.GetAnnotations()
	if marks == nil {
		marks = map[string]string{}
	}
	marks[DefinitionAnnotation], marks[GenerationAnnotation] = d.Digest, strconv.FormatInt(over, 10)
	o.SetAnnotations(marks)
	return o, nil
}

// overtaken reports whether the definition of an object changed again after we wrote it
// last. Kinds without generations do not show it.
func overtaken(live *unstructured.Unstructured) bool {
	over, err := strconv.ParseInt(live.GetAnnotations()[GenerationAnnotation], 10, 64)
	return err != nil || live.GetGeneration() > over+1
}

// As is the definition with what the API server made of it.
func (d Definition) As(live *unstructured.Unstructured) (Definition, error) {
	text, err := body(live)
	d.Returned, d.Generation = text, live.GetGeneration()
	return d, err
}

// body is an object as canonical JSON without what is not of its definition: metadata
// and status. A kind without a spec, as a ConfigMap, is compared by all it has.
func body(o *unstructured.Unstructured) (string, error) {
	rest := maps.Clone(o.Object)
	delete(rest, "metadata")
	delete(rest, "status")
	text, err := json.Marshal(rest)
	if err != nil {
		return "", fmt.Errorf("encoding %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return string(text), nil
}

// Drifted reports whether somebody else changed the object since the definition was
// applied. Status, metadata and what the API server filled in at once are no drift.
func (d Definition) Drifted(live *unstructured.Unstructured) (bool, error) {
	text, err := body(live)
	return text != d.Returned, err
}

// Update is the merge patch that turns the live object, which was made by the
// definition before, into this one: what the one before asked for and this one does
// not goes, what others added stays. It holds for the live object as it was read only.
func (d Definition) Update(before Definition, live *unstructured.Unstructured) ([]byte, error) {
	return d.over([]byte(before.Submitted), live)
}

// Restore is the merge patch that leaves of the live object's definition only what
// this one has.
func (d Definition) Restore(live *unstructured.Unstructured) ([]byte, error) {
	now, err := body(live)
	if err != nil {
		return nil, err
	}
	return d.over([]byte(now), live)
}

func (d Definition) over(original []byte, live *unstructured.Unstructured) ([]byte, error) {
	wanted, err := d.Object(live.GetGeneration())
	if err != nil {
		return nil, err
	}
	modified, err := json.Marshal(wanted.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding definition %s: %w", d.Digest, err)
	}
	return merge(original, modified, live)
}

// Revert is the merge patch that takes all changes of others out of the live object's
// definition again, under the same condition.
func (d Definition) Revert(live *unstructured.Unstructured) ([]byte, error) {
	now, err := body(live)
	if err != nil {
		return nil, err
	}
	var wanted map[string]any
	if err := json.Unmarshal([]byte(d.Returned), &wanted); err != nil {
		return nil, fmt.Errorf("reading the applied form of definition %s: %w", d.Digest, err)
	}
	wanted["metadata"] = map[string]any{"annotations": map[string]any{DefinitionAnnotation: d.Digest}}
	modified, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encoding the applied form of definition %s: %w", d.Digest, err)
	}
	return merge([]byte(now), modified, live)
}

// merge is the three-way merge of kubectl apply, with the resource version under which
// live was read.
func merge(original, modified []byte, live *unstructured.Unstructured) ([]byte, error) {
	if len(original) == 0 {
		original = []byte("{}")
	}
	current, err := json.Marshal(live.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", live.GetKind(), live.GetName(), err)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	if err != nil {
		return nil, fmt.Errorf("merging %s %s: %w", live.GetKind(), live.GetName(), err)
	}
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, fmt.Errorf("merging %s %s: %w", live.GetKind(), live.GetName(), err)
	}
	meta, _ := changes["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["resourceVersion"], meta["uid"] = live.GetResourceVersion(), string(live.GetUID())
	changes["metadata"] = meta
	return json.Marshal(changes)
}

// PatchType of Update and Revert.
const PatchType = types.MergePatchType

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

// isValue reports whether a template is nothing but an expression that ends in toJson.
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
