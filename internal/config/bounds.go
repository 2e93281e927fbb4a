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
// "at least 1s", "above 0", "at most 32", "1 to 100", "kmsg, journal", "not empty", two of
// numbers with ", " between them, and one of them after "0, or ". A number may have its unit
// behind it; a duration has to. A pointer is within every bound if it is nil. A bound of other
// words, such as one that names another key, needs the tag enforced, which names what
// enforces it; without, it is a problem too. A value whose type has a Validate of its own is
// checked by that. A nested struct with one is left to it, and one that has enabled = false is
// not checked.
func CheckBounds(settings any) error {
	var problems []error
	checkBounds(reflect.ValueOf(settings), "", "", &problems)
	return errors.Join(problems...)
}

func checkBounds(v reflect.Value, at, prefix string, problems *[]error) {
	for i := range v.NumField() {
		field, inner := v.Type().Field(i), v.Field(i)
		_, tagged := field.Tag.Lookup("bounds")
		switch key := strings.Trim(at+"."+field.Tag.Get("toml"), "."); {
		case !field.IsExported():
		case tagged:
			if flag := field.Tag.Get("flag"); flag != "" {
				key += " (--" + prefix + flag + ")"
			}
			if err := checkBound(field, inner, key); err != nil {
				*problems = append(*problems, err)
			}
		case inner.Kind() == reflect.Struct && !reflect.PointerTo(field.Type).Implements(validator) && !disabled(inner):
			checkBounds(inner, key, prefix+field.Tag.Get("prefix"), problems)
		}
	}
}

func checkBound(field reflect.StructField, v reflect.Value, key string) error {
	if own, ok := reflect.TypeAssert[Validator](v); ok {
		if err := own.Validate(); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}
	if err := checkTag(field, key); err != nil || field.Tag.Get(enforced) != "" {
		return err
	}
	if bounds := field.Tag.Get("bounds"); !within(bounds, v).satisfied {
		return outOf(key, bounds, v)
	}
	return nil
}

// enforced is the tag of a field whose bounds CheckBounds cannot read: it names what
// enforces them.
const enforced = "enforced"

// CheckTags joins the bounds of a type's fields, and of all types within it, that
// CheckBounds cannot read and that are not tagged so, and those that are tagged without need.
func CheckTags(t reflect.Type) error {
	var problems []error
	checkTags(t, map[reflect.Type]bool{}, &problems)
	return errors.Join(problems...)
}

func checkTags(t reflect.Type, done map[reflect.Type]bool, problems *[]error) {
	for t.Kind() == reflect.Map || t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || done[t] {
		return
	}
	done[t] = true
	for field := range t.Fields() {
		if !field.IsExported() {
			continue
		}
		if _, tagged := field.Tag.Lookup("bounds"); tagged && !field.Type.Implements(validator) {
			if err := checkTag(field, t.String()+"."+field.Name); err != nil {
				*problems = append(*problems, err)
			}
		}
		checkTags(field.Type, done, problems)
	}
}

// checkTag refuses bounds that cannot be read and are not tagged so, or the reverse.
func checkTag(field reflect.StructField, name string) error {
	bounds, tagged := field.Tag.Get("bounds"), field.Tag.Get(enforced) != ""
	switch readable := within(bounds, reflect.Zero(field.Type)).readable; {
	case readable && tagged:
		return fmt.Errorf("%s: program error: the bounds %q are readable, remove the tag %s", name, bounds, enforced)
	case !readable && !tagged:
		return fmt.Errorf("%s: program error: the bounds %q are not readable for a %s, correct them or name their validation in the tag %s",
			name, bounds, field.Type, enforced)
	}
	return nil
}

var validator = reflect.TypeFor[Validator]()

// disabled reports whether a struct has a key enabled that is false.
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
		return fmt.Errorf("%s is %q: must be one of %s", key, v.Interface(), bounds)
	}
	return fmt.Errorf("%s is %v: must be %s", key, reflect.Indirect(v).Interface(), bounds)
}

// notEmpty is the bound of what has to be given.
const notEmpty = "not empty"

var (
	oneSide  = regexp.MustCompile(`^(at least|at most|above) ([0-9]+)([a-z]*)( MiB| bytes?| min| s)?$`)
	twoSides = regexp.MustCompile(`^([0-9]+)([a-z]*) to ([0-9]+)([a-z]*)( bytes?| min| s)?$`)
	oneOf    = regexp.MustCompile(`^[A-Za-z_]+(, [A-Za-z_]+)+$`)
)

// boundsResult is the result of checking a value; bounds that are not readable are not satisfied.
type boundsResult struct{ satisfied, readable bool }

// within checks a value against bounds. Whether it can read them depends on the value's type only.
func within(bounds string, v reflect.Value) boundsResult {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return boundsResult{true, within(bounds, reflect.Zero(v.Type().Elem())).readable}
	}
	v = reflect.Indirect(v)
	rest, orZero := strings.CutPrefix(bounds, "0, or ")
	switch {
	case orZero:
		out := within(rest, v)
		return boundsResult{out.readable && (v.IsZero() || out.satisfied), out.readable}
	case bounds == notEmpty && v.Kind() == reflect.Slice:
		return boundsResult{v.Len() > 0, true}
	case bounds == notEmpty:
		return boundsResult{!v.IsZero(), true}
	case v.Kind() == reflect.String && oneOf.MatchString(bounds):
		return boundsResult{slices.Contains(strings.Split(bounds, ", "), v.String()), true}
	case v.CanInt():
		return numbers(bounds, v.Int(), v.Type() == reflect.TypeFor[time.Duration]())
	case v.CanFloat():
		return numbers(bounds, v.Float(), false)
	}
	return boundsResult{}
}

// numbers checks a number against all bounds that are given.
func numbers[T int64 | float64](bounds string, n T, duration bool) boundsResult {
	holds := true
	for one := range strings.SplitSeq(bounds, ", ") {
		m := oneSide.FindStringSubmatch(one)
		if two := twoSides.FindStringSubmatch(one); two != nil {
			low, ok := bound(two[1], two[2], duration)
			if holds = holds && n >= T(low); !ok {
				return boundsResult{}
			}
			m = []string{one, "at most", two[3], two[4]}
		}
		if m == nil {
			return boundsResult{}
		}
		edge, ok := bound(m[2], m[3], duration)
		if !ok {
			return boundsResult{}
		}
		switch m[1] {
		case "at least":
			holds = holds && n >= T(edge)
		case "at most":
			holds = holds && n <= T(edge)
		default:
			holds = holds && n > T(edge)
		}
	}
	return boundsResult{holds, true}
}

// bound is a number in the unit of its key: a duration, which has to have a unit, in
// nanoseconds.
func bound(digits, unit string, duration bool) (n int64, ok bool) {
	if duration {
		d, err := time.ParseDuration(digits + unit)
		return int64(d), err == nil && unit != ""
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && unit == ""
}
