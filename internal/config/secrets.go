package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// ownToken is the pod's token for the API server.
var ownToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// resolve resolves the references of all secrets of a configuration, and refuses a
// file that would be read for two receivers.
func resolve(v reflect.Value, lookup func(string) (string, bool)) error {
	err := visit(v, "", func(v reflect.Value, at string) error {
		s, ok := reflect.TypeAssert[*Secret](v.Addr())
		if !ok {
			return nil
		}
		if err := s.resolve(lookup); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		return nil
	})
	return errors.Join(err, oneReceiver(v))
}

// oneReceiver refuses a file or a variable that two keys name: anyone who may choose where
// one secret goes must not choose that another goes there.
func oneReceiver(v reflect.Value) error {
	type use struct {
		of   string
		info os.FileInfo
	}
	var uses []use
	variables := map[string]string{}
	if info, err := os.Stat(ownToken); err == nil {
		uses = append(uses, use{"the API server (the token of the Pod, project a token with a separate audience)", info})
	}
	return visit(v, "", func(v reflect.Value, at string) error {
		if s, is := reflect.TypeAssert[Secret](v); is && s.reference.kind == ofEnvironment {
			if of, used := variables[s.reference.name]; used {
				return fmt.Errorf("%s: %s is already the secret for key %s, use a separate variable for each receiver", at, s.reference, of)
			}
			variables[s.reference.name] = at
			return nil
		}
		path := fileOf(v)
		if path == "" {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil //nolint:nilerr // who reads it says what is wrong
		}
		for _, u := range uses {
			if os.SameFile(u.info, info) {
				return fmt.Errorf("%s: %s is already the secret for %s, use a separate file for each receiver", at, path, u.of)
			}
		}
		uses = append(uses, use{"key " + at, info})
		return nil
	})
}

// fileOf is the file that a secret is read from.
func fileOf(v reflect.Value) string {
	switch s := v.Interface().(type) {
	case Secret:
		if s.reference.kind == ofFile {
			return s.reference.name
		}
	case SecretFile:
		return string(s)
	}
	return ""
}

// visit calls do with every Secret and SecretFile in v, which can be set, and the
// dotted path of its key. It joins the errors.
func visit(v reflect.Value, at string, do func(v reflect.Value, at string) error) error {
	if v.Type() == secretType || v.Type() == secretFileType {
		return do(v, at)
	}
	var problems []error
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				problems = append(problems, visit(v.Field(i), join(at, label(field)), do))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			problems = append(problems, visit(v.Index(i), fmt.Sprintf("%s[%d]", at, i), do))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return visit(v.Elem(), at, do)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(v.MapIndex(key))
			problems = append(problems, visit(item, join(at, fmt.Sprint(key.Interface())), do))
			v.SetMapIndex(key, item)
		}
	default:
	}
	return errors.Join(problems...)
}

// label names a field in errors: by its key, or the variable of one that has no key.
func label(field reflect.StructField) string {
	if key := keyName(field); key != "-" {
		return key
	}
	name, _, _ := strings.Cut(field.Tag.Get("env"), ",")
	return name
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
