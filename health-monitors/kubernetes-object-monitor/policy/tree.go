package policy

import "maps"

// tree is what is kept of a value: all of it, or some fields of a map and something
// of every element of a list. Text, numbers, truths and null are always kept, and so
// is a value that is something else than the expressions take it for.
type tree struct {
	complete bool
	// each is what is kept of every element; nil keeps lists whole. It keeps a map
	// whole, whose keys are iterated.
	each  *tree
	below map[string]*tree
}

const (
	metadataKey      = "metadata"
	managedFieldsKey = "managedFields"
)

// newTree keeps the name of an object.
func newTree() *tree {
	t := &tree{}
	for _, path := range [][]step{
		{{key: "apiVersion"}}, {{key: "kind"}}, {{key: metadataKey}, {key: "name"}}, {{key: metadataKey}, {key: "namespace"}},
	} {
		t.at(path)
	}
	return t
}

// add takes a reading in.
func (t *tree) add(r reading) {
	if place := t.at(r.path); !r.touched {
		place.complete = true
	}
}

// at is the tree of a place, which keeps the place itself.
func (t *tree) at(path []step) *tree {
	for _, s := range path {
		if s.each {
			if t.each == nil {
				t.each = &tree{}
			}
			t = t.each
			continue
		}
		if t.below == nil {
			t.below = map[string]*tree{}
		}
		if t.below[s.key] == nil {
			t.below[s.key] = &tree{}
		}
		t = t.below[s.key]
	}
	return t
}

// prune copies what the tree keeps of an object; what is kept whole is shared. Even of
// an object that is kept whole, managedFields go, unless an expression names them.
func (t *tree) prune(object map[string]any) map[string]any {
	out := t.keepMap(object)
	named := t.below[metadataKey] != nil && t.below[metadataKey].below[managedFieldsKey] != nil
	metadata, ok := out[metadataKey].(map[string]any)
	if _, has := metadata[managedFieldsKey]; !ok || !has || named {
		return out
	}
	out, metadata = maps.Clone(out), maps.Clone(metadata)
	delete(metadata, managedFieldsKey)
	out[metadataKey] = metadata
	return out
}

func (t *tree) keep(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return t.keepMap(v)
	case []any:
		return t.keepList(v)
	}
	return value
}

func (t *tree) keepMap(value map[string]any) map[string]any {
	if t.complete || t.each != nil || value == nil {
		return value
	}
	out := make(map[string]any, min(len(value), len(t.below)))
	for key, child := range t.below {
		if inner, ok := value[key]; ok {
			out[key] = child.keep(inner)
		}
	}
	return out
}

func (t *tree) keepList(value []any) []any {
	if t.complete || t.each == nil || value == nil {
		return value
	}
	out := make([]any, len(value))
	for i, element := range value {
		out[i] = t.each.keep(element)
	}
	return out
}
