package config

import (
	"cmp"
	"reflect"
	"strings"
)

// Changed lists the keys of the first level in which two configurations of one
// struct type differ, as a file names them and in the order of the struct.
func Changed(before, after any) []string {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	var keys []string
	for i := range a.NumField() {
		if reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		field := a.Type().Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		keys = append(keys, cmp.Or(key, field.Name))
	}
	return keys
}
