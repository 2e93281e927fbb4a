package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// respelled gives the keys of a document their present spellings, as the tags
// `old:"other,another"` of the fields of type t name the earlier ones, and says
// which there were. A key that is given in both spellings is an error.
func respelled(t reflect.Type, document map[string]any) (old []string, err error) {
	s := &spelling{}
	s.walk(t, document, "")
	return s.old, errors.Join(s.problems...)
}

type spelling struct {
	old      []string
	problems []error
}

func (s *spelling) walk(t reflect.Type, value any, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch keys := value.(type) {
	case map[string]any:
		s.table(t, keys, at)
	case []map[string]any:
		for _, item := range keys {
			s.item(t, item, at)
		}
	case []any:
		for _, item := range keys {
			s.item(t, item, at)
		}
	}
}

func (s *spelling) item(list reflect.Type, value any, at string) {
	if list.Kind() == reflect.Slice || list.Kind() == reflect.Array {
		s.walk(list.Elem(), value, at)
	}
}

func (s *spelling) table(t reflect.Type, keys map[string]any, at string) {
	switch t.Kind() {
	case reflect.Struct:
		for field := range t.Fields() {
			if field.IsExported() {
				s.field(field, keys, at)
			}
		}
	case reflect.Map:
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			s.walk(t.Elem(), keys[name], join(at, name))
		}
	default: // the decoder says what is wrong
	}
}

func (s *spelling) field(field reflect.StructField, keys map[string]any, at string) {
	key := keyName(field)
	if key == "" { // embedded: its keys are those of the table
		s.walk(field.Type, keys, at)
		return
	}
	present, given := lookUp(keys, key)
	for _, old := range split(field.Tag.Get("old")) {
		name, found := lookUp(keys, old)
		if !found {
			continue
		}
		if given {
			s.problems = append(s.problems, fmt.Errorf("keys %q and %q are one key in two spellings: give the second alone", join(at, name), key))
			return
		}
		if text := fmt.Sprintf("%s is an old spelling of %s", join(at, name), key); !slices.Contains(s.old, text) {
			s.old = append(s.old, text)
		}
		keys[key] = keys[name]
		delete(keys, name)
		present, given = key, true
	}
	if given {
		s.walk(field.Type, keys[present], join(at, key))
	}
}

// lookUp finds a key as the decoder does, which takes no notice of case.
func lookUp(keys map[string]any, key string) (name string, found bool) {
	if _, exact := keys[key]; exact {
		return key, true
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if strings.EqualFold(name, key) {
			return name, true
		}
	}
	return "", false
}
