// Package catalogue holds the codes and patterns that the monitor finds in the kernel log: the
// built-in ones, with an operator's file merged over them.
package catalogue

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/pattern"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/sxid"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Catalogue is what is known of codes and patterns.
type Catalogue struct {
	XIDs     xid.Catalogue
	SXIDs    sxid.Catalogue
	Patterns *pattern.Set
}

//go:embed patterns.toml
var builtin string

// builtinName stands for a file's name in errors about the built-in patterns.
const builtinName = "built-in patterns"

// maxBytes bounds a file; a ConfigMap has less.
const maxBytes = 1 << 20

// Builtin is the catalogue without a file.
func Builtin() Catalogue {
	c, err := parse("", nil)
	if err != nil {
		panic(err) // a test reads the very same text
	}
	return c
}

// Load merges the file at path over the built-in catalogue; empty is none. The
// error names file, line and key of everything that is wrong.
func Load(path string) (Catalogue, error) {
	if path == "" {
		return parse("", nil)
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxBytes {
		err = fmt.Errorf("%s has more than %d bytes, split or shorten it", path, maxBytes)
	}
	if err != nil {
		return Catalogue{}, fmt.Errorf("reading the catalog: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Catalogue{}, fmt.Errorf("reading the catalog: %w", err)
	}
	return parse(path, data)
}

func parse(name string, data []byte) (Catalogue, error) {
	own := file{name: builtinName, text: builtin}
	own.decode()
	patterns := own.patterns(nil)
	given := file{name: name, text: string(data)}
	given.decode()
	patterns = given.patterns(patterns)
	c := Catalogue{XIDs: xid.Builtin.With(given.xids()), SXIDs: sxid.Builtin.With(given.sxids())}
	set, problems := pattern.Compile(patterns)
	for _, p := range problems {
		given.invalid("pattern", given.named[p.Rule], p.Key, "pattern %s: %w", p.Rule, p.Err)
	}
	c.Patterns = set
	return c, errors.Join(append(own.problems, given.problems...)...)
}

// document is the shape of a file.
type document struct {
	XID     []xidEntry       `toml:"xid"`
	SXID    []sxidEntry      `toml:"sxid"`
	Pattern []toml.Primitive `toml:"pattern"`
}

type xidEntry struct {
	Code        int    `toml:"code"`
	Action      string `toml:"action"`
	Fatal       *bool  `toml:"fatal"`
	RebootCures *bool  `toml:"rebootCures"`
	Note        string `toml:"note"`
}

type sxidEntry struct {
	Code   int    `toml:"code"`
	Class  string `toml:"class"`
	Action string `toml:"action"`
	Name   string `toml:"name"`
}

// file is one text on its way to a catalogue.
type file struct {
	name, text string
	doc        document
	meta       toml.MetaData
	named      map[string]int // the place of a pattern in the file
	problems   []error
}

// decode reads the text; without one that can be read the document stays empty.
func (f *file) decode() {
	f.named = map[string]int{}
	text, err := config.PlainTOML(f.name, f.text)
	if err != nil {
		f.problems = append(f.problems, err)
		return
	}
	f.text = text
	meta, err := toml.Decode(f.text, &f.doc)
	if f.meta = meta; err == nil {
		return
	}
	f.doc, f.meta = document{}, toml.MetaData{}
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		f.problems = append(f.problems, fmt.Errorf("%s: line %d (key %q): %s", f.name, parse.Position.Line, parse.LastKey, parse.Message))
		return
	}
	f.problems = append(f.problems, fmt.Errorf("%s: %s", f.name, strings.Replace(plain(err), "(last key ", "(key ", 1)))
}

// plain is the decoder's error without the decoder's name.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "toml: ") }

// invalid notes what is wrong with a key of the table of that kind and place.
func (f *file) invalid(table string, place int, key, format string, args ...any) {
	where := fmt.Sprintf("%s: line %d (key %q): ", f.name, lineOf(f.text, table, place, key), key)
	f.problems = append(f.problems, fmt.Errorf(where+format, args...))
}

var header = regexp.MustCompile(`^\s*\[\[?\s*([\w.-]+)\s*\]\]?`)

// lineOf finds a key of the table of that name and place, both counted from the
// start; that of the table where the key does not stand in it, 0 without either.
// A place of -1 is any.
func lineOf(text, table string, place int, key string) int {
	at, seen, inside := 0, -1, false
	for i, line := range strings.Split(text, "\n") {
		if m := header.FindStringSubmatch(line); m != nil {
			inside = m[1] == table
			if inside {
				seen++
			}
			if inside = inside && (place < 0 || seen == place); inside && at == 0 {
				at = i + 1
			}
			continue
		}
		name, _, assigned := strings.Cut(line, "=")
		if inside && assigned && strings.Trim(name, " \t\"'") == key {
			return i + 1
		}
	}
	return at
}

func (f *file) xids() (rows []xid.Row) {
	for i, e := range f.doc.XID {
		row := xid.Row{Code: e.Code, Action: record.Action(e.Action)}
		_, err := record.ParseAction(e.Action)
		switch {
		case e.Code < 1 || e.Code > 1<<30:
			f.invalid("xid", i, "code", "%d is not a code", e.Code)
		case err != nil:
			f.invalid("xid", i, "action", "%w", err)
		}
		row.Fatal = row.Action != record.ActionNone
		if e.Fatal != nil {
			row.Fatal = *e.Fatal
		}
		row.RebootCures = xid.Cures(row.Action)
		if e.RebootCures != nil {
			row.RebootCures = *e.RebootCures
		}
		if row.Fatal && row.Action == record.ActionNone {
			f.invalid("xid", i, "fatal", "a fatal fault requires an action, and CONTACT_SUPPORT requests manual intervention")
		}
		for _, other := range rows {
			if other.Code == e.Code {
				f.invalid("xid", i, "code", "%d is a duplicate", e.Code)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (f *file) sxids() (rows []sxid.Row) {
	for i, e := range f.doc.SXID {
		row := sxid.Row{Code: e.Code, Class: sxid.Class(e.Class), Action: record.Action(e.Action), Name: e.Name}
		_, err := record.ParseAction(e.Action)
		switch {
		case e.Code < 1 || e.Code > 1<<30:
			f.invalid("sxid", i, "code", "%d is not a code", e.Code)
		case err != nil:
			f.invalid("sxid", i, "action", "%w", err)
		case !row.Class.Known():
			f.invalid("sxid", i, "class", "%q is not one of non-fatal, fatal, always-fatal, notable, bare and bare-fatal", e.Class)
		case row.Class.Serious() != (row.Action != record.ActionNone && row.Class != sxid.Bare):
			f.invalid("sxid", i, "action", "the action of a code of class %s must be %s", e.Class, e.Action)
		}
		for _, other := range rows {
			if other.Code == e.Code {
				f.invalid("sxid", i, "code", "%d is a duplicate", e.Code)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// patterns decodes the file's patterns over those before: one of a known name
// changes the keys that it gives, another is added.
func (f *file) patterns(before []pattern.Rule) []pattern.Rule {
	for i, raw := range f.doc.Pattern {
		var name struct {
			Name string `toml:"name"`
		}
		if err := f.meta.PrimitiveDecode(raw, &name); err != nil || name.Name == "" {
			f.invalid("pattern", i, "name", "a pattern requires a name")
			continue
		}
		if _, twice := f.named[name.Name]; twice {
			f.invalid("pattern", i, "name", "%q is a duplicate", name.Name)
			continue
		}
		f.named[name.Name] = i
		rule, at := pattern.Blank(), len(before)
		for j := range before {
			if before[j].Name == name.Name {
				rule, at = before[j], j
			}
		}
		if err := f.meta.PrimitiveDecode(raw, &rule); err != nil {
			f.invalid("pattern", i, typedKey(err), "pattern %s: %s", name.Name, plain(err))
			continue
		}
		if at == len(before) {
			before = append(before, rule)
		} else {
			before[at] = rule
		}
	}
	for _, key := range f.meta.Undecoded() {
		if len(key) == 2 {
			f.invalid(key[0], -1, key[1], "unknown key")
		} else {
			f.invalid(key.String(), -1, key.String(), "unknown key")
		}
	}
	return before
}

// typedKey is the key that the decoder names in the error of a wrong type.
func typedKey(err error) string {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		return parse.LastKey[strings.LastIndexByte(parse.LastKey, '.')+1:]
	}
	if m := lastKey.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

var lastKey = regexp.MustCompile(`last key "(?:[\w-]+\.)*([\w-]+)"`)
