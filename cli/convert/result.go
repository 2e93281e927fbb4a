package convert

import (
	"fmt"
	"strings"
)

// mark begins every comment of a conversion.
const mark = "# convert-config: "

// Result is a converted configuration.
type Result struct {
	// Text is the configuration in the present spelling, with a comment for each change.
	Text string
	// Changed counts the changes.
	Changed int
	// Left are what a person has to do: names without a counterpart, and those whose value
	// has another form.
	Left []string
}

// String is the text, and behind it, as comments, what is left to do.
func (r Result) String() string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(r.Text, "\n") + "\n\n")
	if len(r.Left) == 0 {
		fmt.Fprintf(&b, "%schanges made: %d, and no manual change is left\n", mark, r.Changed)
		return b.String()
	}
	fmt.Fprintf(&b, "%schanges made: %d, and these need a manual change, see %s:\n", mark, r.Changed, Page)
	for _, left := range r.Left {
		fmt.Fprintf(&b, "#   - %s\n", left)
	}
	return b.String()
}

// leave notes what a person has to do about a name.
func (r *Result) leave(name string, n Name) string {
	text := fmt.Sprintf("%s: %s", name, n.Instead())
	r.Left = append(r.Left, text)
	return text
}
