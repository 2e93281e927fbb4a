package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sharedPage has each part of a configuration that several programs have, once.
const sharedPage = "docs/reference/configuration/shared.md"

const aboutShared = `# Shared blocks of the configuration

Written from the programs by ` + "`make generate`" + `. This page describes each block of keys that several programs share. The page of a program names its blocks, the table that contains each of them, and the defaults that differ. General rules: [configuration](README.md).
`

// block is a part of a configuration that several programs have.
type block struct{ title, about string }

// blockOf reports whether a type is a block, by the tags block (its title) and usage of a blank
// field: _ struct{} `block:"Store" usage:"where the records are"`.
func blockOf(t reflect.Type) (b block, ok bool) {
	for field := range t.Fields() {
		if b.title, ok = field.Tag.Lookup("block"); ok && field.Name == "_" {
			return block{b.title, field.Tag.Get("usage")}, true
		}
	}
	return block{}, false
}

func (b block) link() string {
	anchor := strings.ToLower(strings.ReplaceAll(b.title, " ", "-"))
	return fmt.Sprintf("[%s](shared.md#%s)", b.title, anchor)
}

// Block checks, or writes, the section of shared.md about a block with the given defaults.
func Block(t testing.TB, defaults any) {
	t.Helper()
	v := reflect.ValueOf(defaults)
	b, ok := blockOf(v.Type())
	if !ok {
		t.Fatalf("%s has no blank field with the tag block", v.Type())
	}
	r := newRows(t, v.Type())
	r.bare = true
	r.fields(v, place{hasDefaults: true})
	text := fmt.Sprintf("## %s\n\n%s.\n\n%s", b.title, b.about, r.text())
	page, err := os.ReadFile(filepath.Join(root(t), sharedPage))
	if err != nil && os.Getenv(Write) == "" {
		t.Fatalf("%v: run make generate", err)
	}
	sections := slices.DeleteFunc(sectionsOf(string(page)), func(s string) bool { return titleOf(s) == b.title })
	sections = append(sections, text)
	slices.Sort(sections)
	Check(t, sharedPage, aboutShared+"\n"+strings.Join(sections, "\n"))
}

// sectionsOf are the sections of shared.md.
func sectionsOf(page string) (out []string) {
	for i, section := range strings.Split("\n"+page, "\n## ") {
		if i > 0 {
			out = append(out, "## "+strings.TrimRight(section, "\n")+"\n")
		}
	}
	return out
}

func titleOf(section string) string {
	title, _, _ := strings.Cut(strings.TrimPrefix(section, "## "), "\n")
	return title
}

// documented are the defaults of a block as shared.md has them, by key.
func (r *rows) documented(b block) map[string]string {
	page, err := os.ReadFile(filepath.Join(r.source.root, sharedPage))
	if err != nil {
		r.t.Fatalf("%v: run make generate", err)
	}
	for _, section := range sectionsOf(string(page)) {
		if titleOf(section) != b.title {
			continue
		}
		out := map[string]string{}
		for line := range strings.Lines(section) {
			cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
			if len(cells) > 5 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
				out[strings.Trim(cells[1], " `")] = strings.ReplaceAll(strings.Trim(cells[5], " `"), "\x00", "|")
			}
		}
		return out
	}
	r.t.Fatalf("%s has no section %q: give its package a test that calls reference.Block, and run make generate", sharedPage, b.title)
	return nil
}

// use adds a line about a block that stands at a place.
func (r *rows) use(b block, v reflect.Value, at place) {
	own := r.inside(v, at)
	line := "- " + b.link() + ": " + own.keys()
	if r.bare {
		r.lines = append(r.lines, line)
		return
	}
	known := r.documented(b)
	var differ []string
	for _, x := range own.all {
		usual, ok := known[relative(x.key, at)]
		if !ok {
			r.t.Errorf("%s: section %q lacks %s: run make generate", sharedPage, b.title, relative(x.key, at))
		}
		if at.hasDefaults && x.value != usual {
			differ = append(differ, code(x.key)+" is "+orNothing(x.value))
		}
	}
	r.lines = append(append(r.lines, line+notes(differ, at)), own.lines...)
}

// again adds a line about a table that has the keys of another one on the page.
func (r *rows) again(first firstUse, v reflect.Value, at place) {
	own := r.inside(v, at)
	line := fmt.Sprintf("- %s has the keys of %s", code(at.key), code(first.key))
	usual := map[string]string{}
	for _, x := range first.rows {
		usual[relative(x.key, place{key: first.key})] = x.value
	}
	var differ []string
	for _, x := range own.all {
		if at.hasDefaults && x.value != usual[relative(x.key, at)] {
			differ = append(differ, code(x.key)+" is "+orNothing(x.value))
		}
	}
	r.lines = append(r.lines, line+notes(differ, at))
}

// inside are the rows of a struct by itself.
func (r *rows) inside(v reflect.Value, at place) *rows {
	own := newRows(r.t, v.Type())
	own.within, own.bare = slices.Clone(r.within), r.bare
	own.fields(v, at)
	return own
}

// keys names all keys.
func (r *rows) keys() string {
	var out []string
	for _, x := range r.all {
		out = append(out, code(x.key))
	}
	return strings.Join(out, ", ")
}

// notes are what differs at a place.
func notes(differ []string, at place) (out string) {
	if at.prefix != "" {
		out += "; the flags begin with " + code("--"+at.prefix)
	}
	if len(differ) > 0 {
		out += "; other defaults: " + strings.Join(differ, ", ")
	}
	if at.live {
		out += "; restart no"
	}
	return out
}

func orNothing(value string) string {
	if value == "" {
		return "empty"
	}
	return code(value)
}

func relative(key string, at place) string {
	return strings.TrimPrefix(strings.TrimPrefix(key, at.key), ".")
}
