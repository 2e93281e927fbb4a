package predecessor

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
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
	given := kind == Flag || kind == Environment || kind == Key
	if given {
		b.WriteString("| there | given to | here |\n|---|---|---|\n")
	} else {
		b.WriteString("| there | here |\n|---|---|\n")
	}
	for _, n := range All() {
		if n.Kind != kind {
			continue
		}
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
	switch n.Here {
	case "":
		out = "-"
	case Same:
		out = "the same"
	}
	if n.Note != "" {
		out += "; " + n.Note
	}
	return strings.ReplaceAll(strings.TrimPrefix(out, "-; "), "|", `\|`)
}

// Values is the list of the chart's values, for the chart.
func Values() ([]byte, error) {
	type value struct {
		Path []string `json:"path"`
		Text string   `json:"text"`
	}
	var out []value
	for _, n := range All() {
		if n.Kind == Value {
			out = append(out, value{strings.Split(n.Name, "."), n.Name + ": " + n.Instead()})
		}
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("writing the chart's list: %w", err)
	}
	head := "# Values of the earlier NVSentinel, which templates/_checks.tpl refuses by name;\n# internal/predecessor/names.yaml is the source, `go generate ./predecessor` in internal/ writes this.\n"
	return append([]byte(head), text...), nil
}
