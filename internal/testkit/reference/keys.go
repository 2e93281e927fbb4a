package reference

import (
	"encoding"
	"reflect"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/config"
)

// key is one value of a configuration that a file, a flag or a variable can give.
type key struct {
	path      string
	secret    bool
	flags     []string
	variables []string
	kind      reflect.Type
	// file is the document in which the key has that value; nil where it stands in none.
	file func(value any) map[string]any
}

// spot is where a type stands in a configuration.
type spot struct {
	path, prefix string
	file         func(value any) map[string]any
	within       []reflect.Type
	field        reflect.StructField
}

// keysOf lists the values of a configuration, one of each list and table by name.
func keysOf(t reflect.Type) []key {
	return values(t, spot{file: func(value any) map[string]any {
		document, _ := value.(map[string]any)
		return document
	}})
}

func values(t reflect.Type, at spot) []key {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if slices.Contains(at.within, t) {
		return nil
	}
	text := reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	switch kind := t.Kind(); {
	case text: // a struct too
	case kind == reflect.Struct:
		at.within = append(slices.Clone(at.within), t)
		return fieldValues(t, at)
	case kind == reflect.Slice, kind == reflect.Array:
		below := at
		below.path += "[0]"
		below.file = func(value any) map[string]any { return at.file([]any{value}) }
		return append(values(t.Elem(), below), of(t, at))
	case kind == reflect.Map:
		below := at
		below.path += ".name"
		below.file = func(value any) map[string]any { return at.file(map[string]any{"name": value}) }
		return append(values(t.Elem(), below), of(t, at))
	}
	return []key{of(t, at)}
}

// of is the key of a value itself.
func of(t reflect.Type, at spot) key {
	k := key{path: at.path, secret: t == reflect.TypeFor[config.Secret](), kind: t, file: at.file}
	if name := at.field.Tag.Get("flag"); name != "" {
		k.flags = append(k.flags, at.prefix+name)
	}
	for alias := range strings.SplitSeq(at.field.Tag.Get("alias"), ",") {
		if alias != "" {
			k.flags = append(k.flags, alias)
		}
	}
	for name := range strings.SplitSeq(at.field.Tag.Get("env"), ",") {
		if name != "" {
			k.variables = append(k.variables, name)
		}
	}
	return k
}

func fieldValues(t reflect.Type, at spot) (all []key) {
	for field := range t.Fields() {
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		below := at
		below.prefix, below.field = at.prefix+field.Tag.Get("prefix"), field
		switch {
		case field.Anonymous && name == "":
		case name == "-":
			below.path, below.file = field.Name, nil
		default:
			if name == "" {
				name = field.Name
			}
			below.path = strings.TrimPrefix(at.path+"."+name, ".")
			below.file = func(value any) map[string]any { return at.file(map[string]any{name: value}) }
		}
		all = append(all, values(field.Type, below)...)
	}
	return all
}
