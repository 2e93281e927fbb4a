package convert

import (
	"fmt"
	"strings"
)

// Tables puts the list into a page: what is between the lines
// "<!-- names: KIND -->" and "<!-- end -->" becomes the table of that kind.
func Tables(page string) string {
	for _, kind := range Kinds() {
		begin, end := fmt.Sprintf("<!-- names: %s -->\n", kind), "<!-- end -->"
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if found && closed {
			page = before + begin + table(kind) + end + after
		}
	}
	return page
}

// table is that of one kind, in Markdown.
func table(kind Kind) string {
	var b strings.Builder
	given := kind == Flag || kind == Environment || kind == Key || kind == Spelling
	if given {
		b.WriteString("| there | given to | here |\n|---|---|---|\n")
	} else {
		b.WriteString("| there | here |\n|---|---|\n")
	}
	for _, n := range of(kind, "") {
		name := n.Name
		if kind == Flag {
			name = "--" + name
		}
		fmt.Fprintf(&b, "| `%s` ", name)
		if given {
			at := strings.Join(n.At, ", ")
			if at == "" {
				at = "all"
			}
			fmt.Fprintf(&b, "| %s ", at)
		}
		fmt.Fprintf(&b, "| %s |\n", cell(n))
	}
	return b.String()
}

// cell is what to do about a name.
func cell(n Name) string {
	out := n.Here
	switch {
	case n.Here == "":
		out = "-"
	case n.Here == Same:
		out = "the same"
	case n.Kind == Flag && n.Here == n.To:
		out = "--" + n.Here
	}
	if n.Note != "" {
		out += "; " + n.Note
	}
	return strings.ReplaceAll(strings.TrimPrefix(out, "-; "), "|", `\|`)
}
