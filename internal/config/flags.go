package config

import (
	"encoding"
	"flag"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// bind walks a struct and its nested structs.
func (s *Set) bind(flags *flag.FlagSet, v reflect.Value, prefix string) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, tagged := field.Tag.Lookup("flag")
		if !tagged {
			if v.Field(i).Kind() == reflect.Struct {
				if err := s.bind(flags, v.Field(i), prefix+field.Tag.Get("prefix")); err != nil {
					return err
				}
			}
			continue
		}
		name = prefix + name
		if !settable(v.Field(i)) {
			return fmt.Errorf("binding flag --%s: a %s cannot be a flag", name, field.Type)
		}
		if flags.Lookup(name) != nil {
			return fmt.Errorf("binding flag --%s: declared twice", name)
		}
		for _, alias := range append([]string{name}, split(field.Tag.Get("alias"))...) {
			flags.Var(&value{set: s, name: alias, field: v.Field(i), text: text(v.Field(i))}, alias, field.Tag.Get("usage"))
		}
	}
	return nil
}

// value is the flag of one field: it checks its text when the command line is
// read and writes the field when the configuration is loaded.
type value struct {
	set   *Set
	name  string
	field reflect.Value
	text  string
}

func (v *value) String() string { return v.text }

func (v *value) Set(s string) error {
	given := reflect.New(v.field.Type()).Elem()
	if err := setText(given, s); err != nil {
		return err
	}
	v.text = text(given)
	v.set.settings = append(v.set.settings, setting{name: v.name, text: s, field: v.field})
	return nil
}

// IsBoolFlag lets a bool be given without a value.
func (v *value) IsBoolFlag() bool { return v.field.IsValid() && v.field.Kind() == reflect.Bool }

// settable reports whether setText can write v.
func settable(v reflect.Value) bool {
	if _, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return true
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.Slice:
		return v.Type().Elem().Kind() == reflect.String
	default:
		return false
	}
}

// setText writes the text of a flag or a variable into a field; a list is separated by
// commas.
func setText(v reflect.Value, s string) (err error) {
	if v.Type() != secretType {
		if s, err = plainText(s); err != nil {
			return err
		}
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return u.UnmarshalText([]byte(s))
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 90s or 2h", s)
		}
		v.SetInt(int64(d))
		return nil
	}
	if v.Kind() == reflect.Slice {
		items := split(s)
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			list.Index(i).SetString(item)
		}
		v.Set(list)
		return nil
	}
	return setScalar(v, s)
}

func setScalar(v reflect.Value, s string) error {
	bits := 0
	if v.CanInt() || v.CanUint() || v.CanFloat() {
		bits = v.Type().Bits()
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(s)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(s, 10, bits)
		if err != nil {
			return fmt.Errorf("%q is not a whole number of %d bits", s, bits)
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(s, 10, bits)
		if err != nil {
			return fmt.Errorf("%q is not a non-negative whole number of %d bits", s, bits)
		}
		v.SetUint(n)
	default:
		x, err := strconv.ParseFloat(s, bits)
		if err != nil {
			return fmt.Errorf("%q is not a number", s)
		}
		v.SetFloat(x)
	}
	return nil
}

// text is the default as the help shows it.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = v.Index(i).String()
		}
		return strings.Join(items, ",")
	}
	return fmt.Sprint(v.Interface())
}

// split cuts a list at commas and drops blanks.
func split(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
