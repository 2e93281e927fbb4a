package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// metricsPage are the labels of every series of docs/reference/metrics.md, by its name.
type metricsPage map[string][]string

// nameLabel is the label that a metric's name is.
const nameLabel = "__name__"

// ofTarget are the labels that the scrape of a pod gives each series.
var ofTarget = []string{"namespace", "pod", "container", "job", "instance", "controller"}

// readMetricsPage reads the page; of a histogram it has the series by which it is served.
func readMetricsPage(t *testing.T) metricsPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	page, quoted := metricsPage{}, regexp.MustCompile("`([a-z_]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		own := slices.Clone(ofTarget)
		for _, label := range quoted.FindAllStringSubmatch(row[3], -1) {
			own = append(own, label[1])
		}
		if row[2] != "histogram" {
			page[row[1]] = append(page[row[1]], own...)
			continue
		}
		for _, series := range []string{"_sum", "_count", "_bucket"} {
			page[row[1]+series] = append(page[row[1]+series], own...)
		}
		page[row[1]+"_bucket"] = append(page[row[1]+"_bucket"], "le")
	}
	if len(page) < 200 {
		t.Fatalf("docs/reference/metrics.md has only %d series: was it read?", len(page))
	}
	return page
}

// series are those that a selector names, and whether each of them is served. The series of Go's
// runtime and of the process are not on the page, which states this.
func (p metricsPage) series(s *parser.VectorSelector) (names, problems []string) {
	for _, m := range s.LabelMatchers {
		if m.Name == nameLabel {
			names = strings.Split(m.Value, "|")
		}
	}
	for _, name := range names {
		if p[name] == nil && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "go_") {
			problems = append(problems, fmt.Sprintf("docs/reference/metrics.md has no series %q", name))
		}
	}
	if len(names) == 0 {
		problems = append(problems, fmt.Sprintf("%s names no metric", s))
	}
	return names, problems
}

// under are the labels that any series of an expression has.
func (p metricsPage) under(node parser.Node) []string {
	out := slices.Clone(ofTarget)
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names, _ := p.series(s)
			for _, name := range names {
				out = append(out, p[name]...)
			}
		}
		return nil
	})
	return out
}

// problems are what is wrong with a query: it cannot be parsed, or it names a series
// or a label that is not there.
func (p metricsPage) problems(query string) (out []string) {
	parsed, err := parser.ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	need := func(names, have []string) {
		for _, name := range names {
			if !slices.Contains(have, name) {
				out = append(out, fmt.Sprintf("no series has the label %q in %s", name, query))
			}
		}
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			names, missing := p.series(n)
			out = append(out, missing...)
			for _, name := range names {
				have := append(slices.Clone(ofTarget), p[name]...)
				for _, m := range n.LabelMatchers {
					if m.Name != nameLabel {
						need([]string{m.Name}, have)
					}
				}
			}
		case *parser.AggregateExpr:
			need(n.Grouping, p.under(n.Expr))
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil {
				need(slices.Concat(m.MatchingLabels, m.Include), p.under(n))
			}
		}
		return nil
	})
	return out
}

// grouped are the labels by which a query aggregates.
func grouped(t *testing.T, query string) (out []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			out = append(out, a.Grouping...)
		}
		return nil
	})
	return out
}

// TestQueriesThatCannotBe: what is wrong with a query is noticed.
func TestQueriesThatCannotBe(t *testing.T) {
	page := readMetricsPage(t)
	for query, want := range map[string]string{
		"sum(":                 "parse error",
		"nvsentinel_brake_off": `no series "nvsentinel_brake_off"`,
		`{__name__=~"nvsentinel_paused|nvsentinel_brake"}`: `no series "nvsentinel_brake"`,
		`{namespace="x"}`:                                                              "names no metric",
		`nvsentinel_paused{reason="x"}`:                                                `the label "reason"`,
		"sum by (reason) (nvsentinel_paused)":                                          `the label "reason"`,
		"nvsentinel_paused and on (node) nvsentinel_build_info":                        `the label "node"`,
		"janitor_action_mttr_seconds":                                                  `no series "janitor_action_mttr_seconds"`,
		"sum by (le, action_type, pod) (rate(janitor_action_mttr_seconds_bucket[5m]))": "",
		"process_resident_memory_bytes and on (pod) nvsentinel_build_info":             "",
	} {
		got := strings.Join(page.problems(query), "; ")
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
