package reference

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tryBounds tries the bounds that a configuration states of itself, in several of its
// settings: a value at a bound is refused in none, one beyond it in some. It takes
// those that are numbers, durations or a list of words; what is in a list of tables, or
// depends on another key, is left out.
func tryBounds(t testing.TB, settings ...any) {
	t.Helper()
	missed, refused := map[string]bool{}, map[string]bool{}
	for _, setting := range settings {
		cfg := reflect.New(reflect.TypeOf(setting))
		cfg.Elem().Set(reflect.ValueOf(setting))
		check, ok := reflect.TypeAssert[interface{ Validate() error }](cfg)
		if !ok {
			return
		}
		enable(cfg.Elem())
		refusals := func() string { return fmt.Sprint(check.Validate()) }
		before := refusals()
		leaves(cfg.Elem(), "", func(key, bounds string, v reflect.Value) {
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			defer v.Set(was)
			inside, beyond := edges(bounds, v)
			for _, x := range inside {
				v.Set(x)
				if now := refusals(); strings.Contains(now, key) && !strings.Contains(before, key) {
					t.Errorf("%s: %v is within %q, and is refused: %s", key, x, bounds, now)
				}
			}
			for _, x := range beyond {
				v.Set(x)
				what := fmt.Sprintf("%s: %v is beyond %q, and is not refused", key, x, bounds)
				missed[what] = true
				refused[what] = refused[what] || refusals() != before
			}
		})
	}
	for what := range missed {
		if !refused[what] {
			t.Error(what)
		}
	}
}

// enable switches on what can be: keys of what is off are not checked.
func enable(v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch inner := v.Field(i); {
		case inner.Kind() == reflect.Struct && field.IsExported():
			enable(inner)
		case inner.Kind() == reflect.Bool && field.Tag.Get("toml") == "enabled":
			inner.SetBool(true)
		}
	}
}

// leaves visits the fields with bounds, of nested tables too.
func leaves(v reflect.Value, at string, visit func(key, bounds string, v reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		path := strings.Trim(at+"."+key, ".")
		inner := v.Field(i)
		if inner.Kind() == reflect.Pointer && !inner.IsNil() {
			inner = inner.Elem()
		}
		switch bounds, ok := field.Tag.Lookup("bounds"); {
		case !field.IsExported():
		case ok:
			visit(path, bounds, inner)
		case inner.Kind() == reflect.Struct:
			leaves(inner, path, visit)
		}
	}
}

var (
	oneSide  = regexp.MustCompile(`^(at least|at most|above) ([0-9]+)([a-z]*)( MiB| bytes?| min| s)?$`)
	twoSides = regexp.MustCompile(`^([0-9]+)([a-z]*) to ([0-9]+)([a-z]*)( bytes?| min| s)?$`)
	wordList = regexp.MustCompile(`^[A-Za-z_]+(, [A-Za-z_]+)+$`)
)

// edges are values just inside and just beyond.
func edges(bounds string, v reflect.Value) (inside, beyond []reflect.Value) {
	if wordList.MatchString(bounds) && v.Kind() == reflect.String {
		// One of the words may need another key.
		return nil, []reflect.Value{reflect.ValueOf("nonsense").Convert(v.Type())}
	}
	if !v.CanInt() {
		return nil, nil
	}
	at := func(n int64) reflect.Value { return reflect.ValueOf(n).Convert(v.Type()) }
	if m := oneSide.FindStringSubmatch(bounds); m != nil {
		switch n := number(m[2], m[3]); m[1] {
		case "at least":
			return []reflect.Value{at(n)}, []reflect.Value{at(n - 1)}
		case "at most":
			return []reflect.Value{at(n)}, []reflect.Value{at(n + 1)}
		default:
			return []reflect.Value{at(n + 1)}, []reflect.Value{at(n)}
		}
	}
	if m := twoSides.FindStringSubmatch(bounds); m != nil {
		low, high := number(m[1], m[2]), number(m[3], m[4])
		return []reflect.Value{at(low), at(high)}, []reflect.Value{at(low - 1), at(high + 1)}
	}
	return nil, nil
}

// number is a bound in the unit of its key: a duration in nanoseconds.
func number(digits, unit string) int64 {
	if d, err := time.ParseDuration(digits + unit); err == nil {
		return int64(d)
	}
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
