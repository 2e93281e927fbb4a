package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Former is a configuration that names what it had before: keys of the file, and variables
// of the environment, each with what is used instead.
type Former interface {
	FormerKeys() map[string]string
	FormerVariables() map[string]string
}

// former is the error of variables that are set and have no effect any more. What
// Kubernetes sets for a Service of such a name is none.
func former(target any, lookup func(name string) (string, bool)) error {
	f, ok := target.(Former)
	if !ok {
		return nil
	}
	variables := f.FormerVariables()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value, _ := lookup(name)
		if value == "" || strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://") {
			continue
		}
		errs = append(errs, fmt.Errorf("environment variable %s was removed: use %s", name, variables[name]))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("to convert the variables, write one NAME=value per line to FILE and run nvsentinel convert-config --kind environment FILE"))
	}
	return errors.Join(errs...)
}

// instead returns what to use instead of a key that no field has, or empty. typo reports
// whether the key is nearly one that is there, or was one before the first release.
func instead(target any, key []string) (hint string, typo bool) {
	if f, ok := target.(Former); ok {
		if now := f.FormerKeys()[key[0]]; now != "" {
			return "it was removed: use " + now, false
		}
	}
	t := reflect.TypeOf(target)
	if now := renamed[key[len(key)-1]]; slices.Contains(beside(t, key), now) {
		return "it was renamed to " + now, true
	}
	if now := present(t, key); now != "" {
		return "it is spelled " + now + " now", false
	}
	if near := nearest(beside(t, key), key[len(key)-1]); near != "" {
		return "did you mean " + near + "?", true
	}
	return "", false
}

// present is the key of the field that a key is another spelling of, in which words are set
// apart by signs, or that the field's flag is called by; empty if there is none.
func present(t reflect.Type, key []string) string {
	t = inside(t)
	if len(key) == 0 {
		return ""
	}
	if t.Kind() == reflect.Map {
		return present(t.Elem(), key[1:])
	}
	if t.Kind() != reflect.Struct {
		return ""
	}
	for field := range t.Fields() {
		name := keyName(field)
		switch {
		case !field.IsExported():
		case name == "": // embedded: its keys are those of the table
			if now := present(field.Type, key); now != "" {
				return now
			}
		case folded(name) == folded(key[0]) || field.Tag.Get("flag") == key[0]:
			if len(key) > 1 {
				return present(field.Type, key[1:])
			}
			if strings.EqualFold(name, key[0]) {
				return "" // what is around it is spelled otherwise
			}
			return name
		}
	}
	return ""
}

func folded(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}
