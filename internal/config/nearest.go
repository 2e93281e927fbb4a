package config

import "reflect"

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
// its letters, or one, would have to change.
func nearest(known []string, misspelt string) string {
	near, least := "", max(1, len(misspelt)/4)+1
	for _, name := range known {
		if n := edits(misspelt, name); n < least {
			near, least = name, n
		}
	}
	return near
}

// edits counts the letters to add, drop, change or swap with the next until a is b.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
