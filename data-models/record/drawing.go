package record

import (
	"fmt"
	"strings"
)

// Drawing is the table of legal transitions as Markdown with one Mermaid state
// diagram per status field.
func Drawing() string {
	var b strings.Builder
	b.WriteString("# Legal transitions of a record's status\n\nGenerated from `record.Transitions`; the stores refuse everything else.\n")
	field := ""
	for _, t := range Transitions() {
		if t.Field != field {
			if field != "" {
				b.WriteString("```\n")
			}
			field = t.Field
			fmt.Fprintf(&b, "\n## %s\n\n```mermaid\nstateDiagram-v2\n", field)
		}
		from := t.From
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s\n", from, t.To)
	}
	b.WriteString("```\n")
	return b.String()
}
