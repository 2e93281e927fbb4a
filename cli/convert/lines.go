package convert

import (
	"fmt"
	"strings"
)

// Variables converts a list of environment variables of a program, NAME=value a line. What
// is a variable here too stays; others become flags.
func Variables(program, text string) Result {
	var r Result
	var out []string
	store, known := newStore(), of(Environment, program)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if !found || strings.HasPrefix(name, "#") {
			out = append(out, line)
			continue
		}
		part, ofStore := variables[name]
		n, listed := exact(known, name)
		switch {
		case ofStore:
			store.set(part, strings.Trim(value, `"'`))
			out = append(out, mark+name+" is now a part of --store")
			r.Changed++
		case !listed:
			out = append(out, line)
		default:
			out = append(out, mark+r.leave(name, n))
			r.Changed++
		}
	}
	if store.configured() {
		out = append(out, store.flag(&r))
	}
	r.Text = strings.Join(out, "\n")
	return r
}

// Flags converts the flags of a program, --name=value a line.
func Flags(program, text string) Result {
	var r Result
	var out []string
	known := of(Flag, program)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		flag := strings.TrimLeft(strings.TrimSpace(line), "-")
		name, value, _ := strings.Cut(flag, "=")
		n, listed := exact(known, name)
		if whole, ok := exact(known, flag); ok { // a flag with a value of another name
			n, listed, name, value = whole, true, flag, ""
		}
		switch {
		case !listed || flag == strings.TrimSpace(line):
			out = append(out, line)
			continue
		case n.To == "":
			out = append(out, mark+r.leave("--"+name, n), "# "+line)
		default:
			out = append(out, fmt.Sprintf("%s--%s is now --%s", mark, name, n.To), strings.TrimSuffix("--"+n.To+"="+value, "="))
		}
		r.Changed++
	}
	r.Text = strings.Join(out, "\n")
	return r
}

func exact(list []Name, name string) (Name, bool) {
	for _, n := range list {
		if n.Name == name {
			return n, true
		}
	}
	return Name{}, false
}
