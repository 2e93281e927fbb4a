package config

import (
	"fmt"
	"reflect"
)

// environment writes the fields tagged `env:"NAME"`, and those of nested
// structs, whose variable is set and not empty. Of several names, separated by
// commas, the first that is set counts.
func environment(v reflect.Value, lookup func(string) (string, bool)) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		names, tagged := field.Tag.Lookup("env")
		if !tagged && v.Field(i).Kind() == reflect.Struct {
			if err := environment(v.Field(i), lookup); err != nil {
				return err
			}
		}
		for _, name := range split(names) {
			text, _ := lookup(name)
			if text == "" {
				continue
			}
			if err := setText(v.Field(i), text); err != nil {
				return fmt.Errorf("environment variable %s: %w", name, err)
			}
			break
		}
	}
	return nil
}
