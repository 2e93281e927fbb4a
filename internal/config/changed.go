package config

import "reflect"

// NeedsRestart lists the keys of the first level in which two configurations of one
// struct type differ and whose fields are not tagged `live:"true"`, as taken over
// while a service runs; as a file names them and in the order of the struct.
func NeedsRestart(before, after any) []string {
	return changed(reflect.ValueOf(before), reflect.ValueOf(after))
}

func changed(before, after reflect.Value) []string {
	var keys []string
	for i := range before.NumField() {
		field := before.Type().Field(i)
		switch {
		case !field.IsExported():
		case field.Tag.Get("live") != "" || reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()):
		case keyName(field) == "":
			keys = append(keys, changed(before.Field(i), after.Field(i))...)
		default:
			keys = append(keys, keyName(field))
		}
	}
	return keys
}
