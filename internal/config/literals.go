package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// literals takes the escapes out of the texts of a document, which is a file of a
// configuration of type t, and reports whether there were any. A reference outside of the
// keys of secrets is an error, whatever type the key has.
func literals(file string, t reflect.Type, document map[string]any) (escaped bool, err error) {
	l := &literalScanner{file: file}
	l.value(t, document, "")
	return l.escaped, errors.Join(l.problems...)
}

// PlainTOML is a text of TOML without escapes, for who decodes it by itself. A reference
// in it is an error that names file and key; what is no TOML is left to the decoder.
func PlainTOML(file, text string) (string, error) {
	keys := map[string]any{}
	if _, err := toml.Decode(text, &keys); err != nil {
		return text, nil //nolint:nilerr // the decoder says what is wrong
	}
	escaped, err := literals(file, nil, keys)
	if err != nil || !escaped {
		return text, err
	}
	written, err := toml.Marshal(keys)
	return string(written), err
}

type literalScanner struct {
	file     string
	escaped  bool
	problems []error
}

// value is the value without escapes; t is nil where no field is known.
func (l *literalScanner) value(t reflect.Type, value any, at string) any {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch x := value.(type) {
	case string:
		if t != secretType {
			return l.text(x, at)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			if _, bad := literal(key); bad != "" {
				l.invalid(join(at, key), "%s: a reference is not allowed in a key", shown(bad))
			}
			x[key] = l.value(typeOf(t, key), x[key], join(at, key))
		}
	case []map[string]any:
		for i := range x {
			l.value(elementOf(t), x[i], fmt.Sprintf("%s[%d]", at, i))
		}
	case []any:
		for i := range x {
			x[i] = l.value(elementOf(t), x[i], fmt.Sprintf("%s[%d]", at, i))
		}
	}
	return value
}

func (l *literalScanner) text(text, at string) string {
	plain, err := plainText(text)
	if err != nil {
		l.invalid(at, "%w", err)
		return text
	}
	l.escaped = l.escaped || plain != text
	return plain
}

func (l *literalScanner) invalid(at, format string, args ...any) {
	l.problems = append(l.problems, fmt.Errorf("%s: key %q: "+format, append([]any{l.file, at}, args...)...))
}

// typeOf is the type of a key of a table of type t, or nil.
func typeOf(t reflect.Type, key string) reflect.Type {
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		return fieldType(t, key)
	default:
		return nil
	}
}

// fieldType is the type of the field of a key, as the decoder finds it.
func fieldType(t reflect.Type, key string) reflect.Type {
	for field := range t.Fields() {
		name := keyName(field)
		switch {
		case !field.IsExported():
		case name != "" && strings.EqualFold(name, key):
			return field.Type
		case name == "" && field.Type.Kind() == reflect.Struct:
			if found := fieldType(field.Type, key); found != nil {
				return found
			}
		}
	}
	return nil
}

// elementOf is the type of an item of a list of type t, or nil.
func elementOf(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		return nil
	}
	return t.Elem()
}
