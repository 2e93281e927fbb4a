package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
)

// resolve replaces strings that are wholly a reference, ${env:NAME} or
// ${file:/path}, by what they name: the way a secret gets into a
// configuration. path is the dotted path of v for errors.
func resolve(v reflect.Value, path string, lookup func(string) (string, bool)) error {
	switch v.Kind() {
	case reflect.String:
		text, err := reference(v.String(), lookup)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		v.SetString(text)
	case reflect.Struct:
		return resolveFields(v, path, lookup)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := resolve(v.Index(i), fmt.Sprintf("%s[%d]", path, i), lookup); err != nil {
				return err
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return resolve(v.Elem(), path, lookup)
		}
	case reflect.Map:
		return resolveMap(v, path, lookup)
	default:
	}
	return nil
}

func resolveFields(v reflect.Value, path string, lookup func(string) (string, bool)) error {
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() {
			if err := resolve(v.Field(i), join(path, keyName(field)), lookup); err != nil {
				return err
			}
		}
	}
	return nil
}

func resolveMap(v reflect.Value, path string, lookup func(string) (string, bool)) error {
	for _, key := range v.MapKeys() {
		item := reflect.New(v.Type().Elem()).Elem()
		item.Set(v.MapIndex(key))
		if err := resolve(item, join(path, fmt.Sprint(key.Interface())), lookup); err != nil {
			return err
		}
		v.SetMapIndex(key, item)
	}
	return nil
}

func reference(text string, lookup func(string) (string, bool)) (string, error) {
	body, isRef := strings.CutPrefix(text, "${")
	body, closed := strings.CutSuffix(body, "}")
	if !isRef || !closed {
		return text, nil
	}
	if name, ok := strings.CutPrefix(body, "env:"); ok {
		value, found := lookup(name)
		if !found {
			return "", fmt.Errorf("the environment has no %s", name)
		}
		return value, nil
	}
	if file, ok := strings.CutPrefix(body, "file:"); ok {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading a reference: %w", err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	}
	return text, nil
}

func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}

// keyName is a field's key in the file; an embedded struct adds none.
func keyName(field reflect.StructField) string {
	if name, _, _ := strings.Cut(field.Tag.Get("toml"), ","); name != "" {
		return name
	}
	if field.Anonymous {
		return ""
	}
	return field.Name
}
