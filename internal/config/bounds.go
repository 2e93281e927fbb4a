package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CheckBounds joins what is out of the bounds that the tags of a struct's fields state:
// "at least 1s", "above 0", "at most 32", "1 to 100", "kmsg, journal", "not empty", and
// several of them after "0, or ". A number may have its unit behind it. Bounds of other
// words, such as those that name another key, are for Validate. A value whose type has a
// Validate of its own is judged by that. A nested struct with one is left to it, and one that
// has enabled = false is not judged.
func CheckBounds(settings any) error {
	var problems []error
	checkBounds(reflect.ValueOf(settings), "", "", &problems)
	return errors.Join(problems...)
}

func checkBounds(v reflect.Value, at, prefix string, problems *[]error) {
	for i := range v.NumField() {
		field, inner := v.Type().Field(i), v.Field(i)
		bounds, tagged := field.Tag.Lookup("bounds")
		switch key := strings.Trim(at+"."+field.Tag.Get("toml"), "."); {
		case !field.IsExported():
		case tagged:
			if flag := field.Tag.Get("flag"); flag != "" {
				key += " (--" + prefix + flag + ")"
			}
			if own, ok := reflect.TypeAssert[Validator](inner); ok {
				if err := own.Validate(); err != nil {
					*problems = append(*problems, fmt.Errorf("%s: %w", key, err))
				}
			} else if !within(bounds, inner) {
				*problems = append(*problems, outOf(key, bounds, inner))
			}
		case inner.Kind() == reflect.Struct && !reflect.PointerTo(field.Type).Implements(validator) && !disabled(inner):
			checkBounds(inner, key, prefix+field.Tag.Get("prefix"), problems)
		}
	}
}

var validator = reflect.TypeFor[Validator]()

// disabled says whether a struct has a key enabled that is false.
func disabled(v reflect.Value) bool {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == "enabled" && v.Field(i).Kind() == reflect.Bool {
			return !v.Field(i).Bool()
		}
	}
	return false
}

// outOf names key and value, and what would be right.
func outOf(key, bounds string, v reflect.Value) error {
	switch {
	case bounds == notEmpty:
		return fmt.Errorf("%s is empty", key)
	case v.Kind() == reflect.String:
		return fmt.Errorf("%s is %q; it has to be one of %s", key, v.Interface(), bounds)
	}
	return fmt.Errorf("%s is %v; it has to be %s", key, v.Interface(), bounds)
}

// notEmpty is the bound of what has to be given.
const notEmpty = "not empty"

var (
	oneSide  = regexp.MustCompile(`^(at least|at most|above) ([0-9]+)([a-z]*)( MiB| bytes?| min| s)?$`)
	twoSides = regexp.MustCompile(`^([0-9]+)([a-z]*) to ([0-9]+)([a-z]*)( bytes?| min| s)?$`)
	oneOf    = regexp.MustCompile(`^[A-Za-z_]+(, [A-Za-z_]+)+$`)
)

// within says whether a value is within bounds; of bounds that it cannot read it is.
func within(bounds string, v reflect.Value) bool {
	rest, orZero := strings.CutPrefix(bounds, "0, or ")
	switch {
	case orZero:
		return v.IsZero() || within(rest, v)
	case bounds == notEmpty && v.Kind() == reflect.Slice:
		return v.Len() > 0
	case bounds == notEmpty:
		return !v.IsZero()
	case v.Kind() == reflect.String && oneOf.MatchString(bounds):
		return slices.Contains(strings.Split(bounds, ", "), v.String())
	case !v.CanInt():
		return true
	}
	if m := oneSide.FindStringSubmatch(bounds); m != nil {
		switch n := bound(m[2], m[3]); m[1] {
		case "at least":
			return v.Int() >= n
		case "at most":
			return v.Int() <= n
		default:
			return v.Int() > n
		}
	}
	if m := twoSides.FindStringSubmatch(bounds); m != nil {
		return v.Int() >= bound(m[1], m[2]) && v.Int() <= bound(m[3], m[4])
	}
	return true
}

// bound is a number in the unit of its key: a duration in nanoseconds.
func bound(digits, unit string) int64 {
	if d, err := time.ParseDuration(digits + unit); err == nil && unit != "" {
		return int64(d)
	}
	n, _ := strconv.ParseInt(digits, 10, 64) // it is digits
	return n
}
