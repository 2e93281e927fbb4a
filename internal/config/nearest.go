package config

import (
	"reflect"

	edlib "github.com/hbollon/go-edlib"
)

// beside are the keys of the table that a key stands in.
func beside(t reflect.Type, key []string) []string {
	for _, part := range key[:len(key)-1] {
		if t = typeOf(inside(t), part); t == nil {
			return nil
		}
	}
	if t = inside(t); t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for field := range t.Fields() {
		switch name := keyName(field); {
		case !field.IsExported():
		case name != "":
			out = append(out, name)
		case inside(field.Type).Kind() == reflect.Struct:
			out = append(out, beside(field.Type, key[len(key)-1:])...)
		}
	}
	return out
}

// inside is the type of a table, or of what a list is made of.
func inside(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}

// nearest is the known name that a misspelt one is most like; empty if more than a quarter of
// its letters, or one, would have to be added, dropped, changed or swapped with the next.
func nearest(known []string, misspelt string) string {
	near, least := "", max(1, len(misspelt)/4)+1
	for _, name := range known {
		if n := edlib.OSADamerauLevenshteinDistance(misspelt, name); n < least {
			near, least = name, n
		}
	}
	return near
}
