package main

import (
	"iter"
	"path"
	"slices"
	"strings"
)

// Pages that make generate writes from the programs.
const (
	configurationFolder = "docs/reference/configuration"
	metricsPage         = "docs/reference/metrics.md"
)

func isPage(name string) bool {
	return name == metricsPage || path.Dir(name) == configurationFolder && path.Ext(name) == ".md"
}

// configuration is the counts from the pages of the programs' configuration.
type configuration struct {
	pages int
	rows  int
	keys  int // different keys; a flag of all programs, which have no key, counts as one
}

// configurationOf counts the rows of keys and flags. A row without either is about a
// variable of the environment.
func configurationOf(pages map[string]string) (out configuration) {
	keys := map[string]bool{}
	for name, text := range pages {
		if path.Dir(name) != configurationFolder {
			continue
		}
		rows := out.rows
		for row := range tables(text, "key", "flag") {
			out.rows++
			if row[0] != "" {
				keys[row[0]] = true
			}
		}
		if out.rows > rows && path.Base(name) != "README.md" {
			out.pages++
		}
	}
	out.keys = len(keys)
	return out
}

// metricsOf are the different metrics of the page, sorted.
func metricsOf(page string) []string {
	var out []string
	for row := range tables(page, "metric") {
		out = append(out, strings.Trim(row[0], "`"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// prefixes are the different first words of metrics, sorted.
func prefixes(metrics []string) []string {
	var out []string
	for _, m := range metrics {
		first, _, _ := strings.Cut(m, "_")
		out = append(out, first)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tables are the rows of the tables of a page whose first column has one of these names,
// each as its cells. Cells contain no bar except escaped ones, which no first cell has.
func tables(page string, first ...string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		inside, wanted := false, false
		for line := range strings.Lines(page) {
			cells, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
			row := strings.Split(cells, "|")
			for i := range row {
				row[i] = strings.TrimSpace(row[i])
			}
			isHead, isRule := isRow && !inside, strings.HasPrefix(row[0], "--")
			if isHead {
				wanted = slices.Contains(first, row[0])
			}
			if inside = isRow; isRow && !isHead && !isRule && wanted && !yield(row) {
				return
			}
		}
	}
}

// imagesOf are the rows of the list of images: name, folder of the program, and what is
// added to it.
func imagesOf(list string) (out []image) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && !strings.HasPrefix(fields[0], "#") {
			for program := range strings.SplitSeq(fields[1], ",") {
				out = append(out, image{fields[0], path.Clean(program)})
			}
		}
	}
	return out
}

// countImages counts the images; one with several programs has as many rows.
func countImages(rows []image) int {
	names := map[string]bool{}
	for _, i := range rows {
		names[i.name] = true
	}
	return len(names)
}
