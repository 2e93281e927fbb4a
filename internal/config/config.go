package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
)

// Validator is a configuration that returns all its problems, joined, each
// with the path of its key.
type Validator interface{ Validate() error }

// Set is a configuration whose flags are bound to a flag set.
type Set struct {
	program  string
	target   any
	settings []setting
}

// setting is one flag as the command line gave it.
type setting struct {
	name, text string
	field      reflect.Value
}

// Bind declares a flag on flags for every tagged field of target, which is a
// pointer to a struct that holds the defaults. The flags take effect in Load.
func Bind(flags *flag.FlagSet, target any) (*Set, error) {
	v := reflect.ValueOf(target)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("binding flags: %T is not a pointer to a struct", target)
	}
	s := &Set{program: flags.Name(), target: target}
	return s, s.bind(flags, v.Elem(), "")
}

// Load reads file (none when empty) over the defaults, then the variables of the
// environment that fields name, applies the flags that were given, resolves the
// references of secrets with lookup, and validates.
func (s *Set) Load(file string, lookup func(name string) (string, bool)) error {
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if err := decode(s.program, file, content, s.target); err != nil {
			return err
		}
	}
	if err := former(s.target, lookup); err != nil {
		return err
	}
	if err := environment(reflect.ValueOf(s.target).Elem(), lookup); err != nil {
		return err
	}
	for _, g := range s.settings {
		if err := setText(g.field, g.text); err != nil {
			return fmt.Errorf("flag --%s: %w", g.name, err)
		}
	}
	if err := resolve(reflect.ValueOf(s.target).Elem(), lookup); err != nil {
		return err
	}
	if v, ok := s.target.(Validator); ok {
		return v.Validate()
	}
	return nil
}
