// Package reference writes the pages of docs/reference/configuration from the structs of the
// programs' configurations, and reports when one is stale.
package reference

import (
	"cmp"
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Write is the environment variable that has Check write what it would compare.
const Write = "NVSENTINEL_WRITE_PAGES"

// intro begins every page.
const intro = `# Configuration of %s

Written from the program by ` + "`make generate`" + `. See [configuration](README.md) for files, variables, and the flags of every program.

`

// Page checks, or writes, the page of a program whose configuration has the given
// defaults, tries the bounds that it states, and checks that they can be read, that references are
// for secrets only and that no secret is printed; others are settings in which keys count that do
// not in the defaults.
func Page(t testing.TB, program string, defaults any, others ...any) {
	t.Helper()
	r := newRows(t, reflect.TypeOf(defaults))
	r.fields(reflect.ValueOf(defaults), place{hasDefaults: true})
	Check(t, "docs/reference/configuration/"+program+".md", fmt.Sprintf(intro, program)+r.text())
	if err := config.CheckTags(reflect.TypeOf(defaults)); err != nil {
		t.Error(err)
	}
	tryBounds(t, append([]any{defaults}, others...)...)
	tryFormer(t, program, defaults)
	tryReferences(t, defaults)
	for _, setting := range append([]any{defaults}, others...) {
		trySecrets(t, setting)
	}
}

// Check compares a page, by its path in the repository, or writes it.
func Check(t testing.TB, page, want string) {
	t.Helper()
	file := filepath.Join(root(t), page)
	if os.Getenv(Write) != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run make generate", err)
	}
	if string(got) == want {
		return
	}
	lines := strings.Split(string(got), "\n")
	for line := range strings.SplitSeq(want, "\n") {
		if !slices.Contains(lines, line) {
			t.Errorf("%s lacks\n%s", page, line)
		}
	}
	t.Errorf("%s is stale: run make generate", page)
}

// root is the folder of the repository.
func root(t testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.work above the test: %v", err)
	return ""
}

// row is one key; empty is none.
type row struct{ key, flag, variable, kind, value, bounds, meaning, restart string }

type rows struct {
	t      testing.TB
	source source
	all    []row
	lines  []string // about shared blocks, and tables with the keys of another one
	own    reflect.Type
	bare   bool // a block inside is named alone: shared.md may not have it yet
	within []reflect.Type
	seen   map[reflect.Type]firstUse
}

// firstUse is where a struct stood first on a page, and its rows there.
type firstUse struct {
	key  string
	rows []row
}

// newRows is for the rows of a struct, which may be a block.
func newRows(t testing.TB, own reflect.Type) *rows {
	return &rows{t: t, source: source{root: root(t)}, own: own, seen: map[reflect.Type]firstUse{}}
}

// place is where fields stand in a configuration.
type place struct {
	key, prefix string
	// hasDefaults: the place exists without a file, so that its fields have defaults.
	hasDefaults bool
	live        bool
}

// fields adds the rows of a struct. A block, and a struct that was there before, get a line.
func (r *rows) fields(v reflect.Value, at place) {
	t := v.Type()
	if slices.Contains(r.within, t) {
		return
	}
	if b, ok := blockOf(t); ok && t != r.own {
		r.use(b, v, at)
		return
	}
	if first, ok := r.seen[t]; ok && at.key != "" {
		r.again(first, v, at)
		return
	}
	r.within = append(r.within, t)
	defer func() { r.within = r.within[:len(r.within)-1] }()
	before := len(r.all)
	for i := range v.NumField() {
		if field := t.Field(i); field.IsExported() {
			r.field(t, field, v.Field(i), at)
		}
	}
	r.seen[t] = firstUse{at.key, r.all[before:]}
}

func (r *rows) field(owner reflect.Type, field reflect.StructField, v reflect.Value, at place) {
	key, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
	below := place{key: at.key, prefix: at.prefix + field.Tag.Get("prefix"), hasDefaults: at.hasDefaults, live: at.live || field.Tag.Get("live") != ""}
	if field.Anonymous && key == "" {
		r.fields(v, below)
		return
	}
	x := row{variable: strings.ReplaceAll(field.Tag.Get("env"), ",", ", "), bounds: field.Tag.Get("bounds")}
	if key != "-" {
		below.key = strings.TrimPrefix(at.key+"."+cmp.Or(key, field.Name), ".")
		x.key = below.key
	}
	if name, ok := field.Tag.Lookup("flag"); ok {
		x.flag = "--" + at.prefix + name
		for alias := range strings.SplitSeq(field.Tag.Get("alias"), ",") {
			if alias != "" {
				x.flag += ", --" + alias
			}
		}
	}
	t, given := field.Type, v
	if t.Kind() == reflect.Pointer {
		t, given = t.Elem(), v.Elem()
	}
	if inner, suffix := element(t); inner != nil {
		x.kind = "table"
		if suffix != "" {
			x.kind = map[string]string{"[]": "list of tables", ".NAME": "tables by name"}[suffix]
			given = reflect.New(inner).Elem()
			below.hasDefaults = false
		}
		if !given.IsValid() {
			given, below.hasDefaults = reflect.New(inner).Elem(), false
		}
		below.key += suffix
		if suffix != "" || field.Type.Kind() == reflect.Pointer {
			r.add(owner, field, x, below.live)
		}
		r.fields(given, below)
		return
	}
	x.kind = kind(t)
	if at.hasDefaults && given.IsValid() {
		x.value = value(given)
	}
	r.add(owner, field, x, below.live)
}

func (r *rows) add(owner reflect.Type, field reflect.StructField, x row, live bool) {
	x.meaning = cmp.Or(field.Tag.Get("usage"), r.source.comment(r.t, owner, field.Name))
	if x.meaning == "" {
		r.t.Errorf("%s.%s (key %s) has neither a usage nor a comment", owner, field.Name, x.key)
	}
	x.restart = "yes"
	if live {
		x.restart = "no"
	}
	r.all = append(r.all, x)
}

// element is the struct of a table, a list of tables or tables by name, with what
// stands behind its key.
func element(t reflect.Type) (inner reflect.Type, suffix string) {
	switch t.Kind() {
	case reflect.Slice:
		inner, suffix = t.Elem(), "[]"
	case reflect.Map:
		inner, suffix = t.Elem(), ".NAME"
	default:
		inner = t
	}
	if inner.Kind() == reflect.Pointer {
		inner = inner.Elem()
	}
	if inner.Kind() != reflect.Struct || reflect.PointerTo(inner).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil, ""
	}
	return inner, suffix
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[config.Secret]():
		return "secret"
	case t == reflect.TypeFor[config.SecretFile]():
		return "file of a secret"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "list: " + kind(t.Elem())
	case reflect.Map:
		return "table: " + kind(t.Elem())
	case reflect.Interface:
		return "any"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.String:
		return "text"
	default:
		return "whole number"
	}
}

// value is a default as a file writes it; empty where it is nothing.
func value(v reflect.Value) string {
	if s, ok := reflect.TypeAssert[fmt.Stringer](v); ok {
		if v.IsZero() && v.Kind() != reflect.Int64 {
			return ""
		}
		text := s.String()
		for _, zero := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
			if strings.HasSuffix(text, zero) && kind(v.Type()) == "duration" {
				text = text[:len(text)-2]
			}
		}
		return text
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = value(v.Index(i))
		}
		return strings.Join(items, ", ")
	case reflect.Map, reflect.Interface:
		return ""
	default:
		return fmt.Sprint(v.Interface())
	}
}

// text is the table of the rows and the lines below it, in Markdown.
func (r *rows) text() string {
	out := r.table()
	if len(r.lines) > 0 {
		out = strings.TrimPrefix(out+"\nWhat several programs or tables have:\n\n"+strings.Join(r.lines, "\n")+"\n", "\n")
	}
	return out
}

// table is all rows in Markdown; empty if there are none.
func (r *rows) table() string {
	if len(r.all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("| key | flag | variable | type | default | bounds | meaning | restart |\n|---|---|---|---|---|---|---|---|\n")
	for _, x := range r.all {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n",
			code(x.key), code(x.flag), code(x.variable), x.kind, code(x.value), Cell(x.bounds), Cell(x.meaning), x.restart)
	}
	return out.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + Cell(text) + "`"
}

// Cell is a text as it stands in a table.
func Cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
