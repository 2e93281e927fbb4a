package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

const part = `(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)`

var (
	header     = regexp.MustCompile(`^(\s*\[{1,2})\s*(` + part + `(?:\s*\.\s*` + part + `)*)\s*(\]{1,2}.*)$`)
	assignment = regexp.MustCompile(`^(\s*)(` + part + `(?:\s*\.\s*` + part + `)*)(\s*=.*)$`)
	parts      = regexp.MustCompile(part)
)

// TOML converts a configuration file of a program. Comments and order stay.
func TOML(program, text string) (Result, error) {
	if _, err := toml.Decode(text, &map[string]any{}); err != nil {
		return Result{}, fmt.Errorf("reading TOML: %w", err)
	}
	f := &file{keys: of(Key, program), spellings: of(Spelling, program), store: newStore()}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for len(lines) > 0 {
		n := statement(lines)
		f.take(lines[:n])
		lines = lines[n:]
	}
	body := strings.Join(f.out, "\n")
	if f.store.configured() {
		f.result.Changed++
		body = f.store.line(&f.result) + body
	}
	f.result.Text = body
	if _, err := toml.Decode(body, &map[string]any{}); err != nil {
		return Result{}, fmt.Errorf("the converted file is not valid TOML, which is a defect of this command, report it: %w", err)
	}
	return f.result, nil
}

// statement is how many lines the first one goes on for.
func statement(lines []string) int {
	if !assignment.MatchString(lines[0]) {
		return 1
	}
	for n := 1; n < len(lines); n++ {
		if _, err := toml.Decode(strings.Join(lines[:n], "\n"), &map[string]any{}); err == nil {
			return n
		}
	}
	return len(lines)
}

// file is a configuration file while it is converted.
type file struct {
	keys, spellings []Name
	store           *storeParts

	table    []string // that the next keys are in, as it was spelled
	dropping bool     // the table has no counterpart
	out      []string
	result   Result
}

func (f *file) take(lines []string) {
	if m := header.FindStringSubmatch(lines[0]); m != nil {
		f.table, f.dropping = split(m[2]), false
		f.heading(lines[0], func(to string) string { return m[1] + to + m[3] })
		return
	}
	m := assignment.FindStringSubmatch(lines[0])
	if m == nil {
		f.out = append(f.out, lines...)
		return
	}
	path := append(slices.Clip(f.table), split(m[2])...)
	f.assign(lines, path, func(to string) string { return m[1] + to + m[3] })
}

// heading converts the header of a table; write is the line with another name.
func (f *file) heading(line string, write func(to string) string) {
	name := strings.Join(f.table, ".")
	n, found := find(f.keys, name)
	switch to := f.respelled(nil, f.table); {
	case f.table[0] == "datastore":
		f.dropping = true
	case found:
		f.comment([]string{line}, f.result.leave(name, n))
		f.dropping = true
	case to != name:
		f.rewrite([]string{line}, name, write(to), to)
	default:
		f.out = append(f.out, line)
	}
}

// assign converts the assignment of a key at path; write is its first line with another key.
func (f *file) assign(lines, path []string, write func(to string) string) {
	name, own := strings.Join(path, "."), path[len(f.table):]
	n, found := find(f.keys, name)
	switch to := f.respelled(f.table, own); {
	case path[0] == "datastore":
		f.store.take(own, strings.Join(lines, "\n"))
	case f.dropping:
		f.comment(lines, "")
	case found && n.To == "":
		f.comment(lines, f.result.leave(name, n))
	case found:
		f.rewrite(lines, name, write(n.To), n.To)
	case to != strings.Join(own, "."):
		f.rewrite(lines, name, write(to), to)
	default:
		f.out = append(f.out, lines...)
	}
}

// respelled is a key of a table with the present spelling of each of its parts.
func (f *file) respelled(in, key []string) string {
	path, out := strings.Join(in, "."), make([]string, len(key))
	for i, part := range key {
		path, out[i] = strings.TrimPrefix(path+"."+part, "."), part
		if j := slices.IndexFunc(f.spellings, func(n Name) bool { return folded(n.Name) == folded(path) }); j >= 0 {
			out[i] = f.spellings[j].To
		}
	}
	return strings.Join(out, ".")
}

// rewrite puts another first line into a statement.
func (f *file) rewrite(lines []string, name, first, to string) {
	f.result.Changed++
	f.out = append(f.out, fmt.Sprintf("%s%s is now %s", mark, name, to), first)
	f.out = append(f.out, lines[1:]...)
}

// comment takes a statement out.
func (f *file) comment(lines []string, why string) {
	if why != "" {
		f.result.Changed++
		f.out = append(f.out, mark+why)
	}
	for _, line := range lines {
		f.out = append(f.out, "# "+line)
	}
}

// split takes a key apart. A part with quotes is a name that no table here has.
func split(key string) []string {
	out := parts.FindAllString(key, -1)
	for i, p := range out {
		out[i] = strings.Trim(p, `"'`)
	}
	return out
}
