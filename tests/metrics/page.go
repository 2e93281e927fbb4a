package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

const about = `# Metrics

Written from the programs by ` + "`make generate`" + `.

Each program serves its metrics at ` + "`/metrics`" + ` of ` + "`--metrics-address`" + `, with the metrics of the Go runtime and of the process (` + "`go_*`, `process_*`" + `). If nvsentinel-controller runs several controllers in one process, the label ` + "`controller`" + ` names the controller of each series. A name ends in its unit, for example seconds or bytes. A metric without a unit counts things. A metric of an optional part, such as one role of platform-connectors, exists only while that part runs. A series with labels exists from its first value on.

`

// Page is the page of all metrics: first what every program has, then each program,
// those together that have the same.
func Page(programs map[string][]Metric) string {
	var out strings.Builder
	out.WriteString(about + "## Every program\n\n")
	names := slices.Sorted(maps.Keys(programs))
	all := slices.Clone(programs[names[0]])
	for _, name := range names {
		all = slices.DeleteFunc(all, func(m Metric) bool { return !slices.ContainsFunc(programs[name], m.is) })
	}
	out.WriteString(table(all))
	var order []string
	sections := map[string][]string{}
	for _, name := range names {
		text := table(slices.DeleteFunc(slices.Clone(programs[name]), func(m Metric) bool { return slices.ContainsFunc(all, m.is) }))
		if sections[text] == nil {
			order = append(order, text)
		}
		sections[text] = append(sections[text], name)
	}
	for _, text := range order {
		fmt.Fprintf(&out, "\n## %s\n\n%s", strings.Join(sections[text], ", "), text)
	}
	return out.String()
}

func (m Metric) is(other Metric) bool { return m.Name == other.Name }

func table(metrics []Metric) string {
	if len(metrics) == 0 {
		return "None of its own.\n"
	}
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range metrics {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, reference.Cell(m.Help))
	}
	return out.String()
}
