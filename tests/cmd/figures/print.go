package main

import (
	"fmt"
	"io"
	"strings"
)

// write prints the figures as Markdown.
func write(w io.Writer, t tree, binaries []binary) {
	fmt.Fprintln(w, "| figure | value |\n|---|---|")
	for _, row := range rows(t) {
		fmt.Fprintf(w, "| %s | %s |\n", row[0], row[1])
	}
	folders, all := sharesOf(t.sources)
	fmt.Fprintln(w, "\n| folder | product | test machinery | `_test.go` | generated |\n|---|---|---|---|---|")
	all.folder = "all"
	for _, s := range append(folders, all) {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d |\n", s.folder, s.product, s.machinery, s.test, s.made)
	}
	if len(binaries) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| binary | MB | symbols |\n|---|---|---|")
	var sum int64
	for _, b := range binaries {
		symbols := "stripped"
		if !b.stripped {
			symbols = "not stripped"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", b.name, megabytes(b.bytes), symbols)
		sum += b.bytes
	}
	fmt.Fprintf(w, "| all %d | %s | |\n", len(binaries), megabytes(sum))
}

// megabytes are millions of bytes.
func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// rows are the figures of the whole tree.
func rows(t tree) [][2]string {
	_, all := sharesOf(t.sources)
	length := lengthsOf(t.sources)
	out := [][2]string{
		row("product code lines", "%d", all.product),
		row("test machinery code lines", "%d", all.machinery),
		row("`_test.go` code lines", "%d", all.test),
		row("generated code lines", "%d", all.made),
		row("tests : product", "%.2f", ratio(all.test, all.product)),
		row("comment lines, of comments and code of the product", "%.1f %%", 100*ratio(length.comments, length.comments+all.product)),
	}
	out = append(out, things(t)...)
	return append(out,
		row("product lines over 120 columns; in 1,000 code lines", "%d; %.1f", length.long, 1000*ratio(length.long, all.product)),
		row("lines of a product file: p50 / p90 / max", "%s", spread(length.files, 50, 90, 100)),
		row("lines of a product function: p50 / p90 / p99 / max", "%s", spread(length.functions, 50, 90, 99, 100)),
	)
}

// things are the numbers of packages, modules, programs, keys and metrics.
func things(t tree) [][2]string {
	code, packages := packagesOf(t.sources)
	small := 0
	for _, lines := range code {
		if lines < smallPackage {
			small++
		}
	}
	var sum module
	for _, m := range t.modules {
		sum = module{sum.modLines + m.modLines, sum.sumLines + m.sumLines, sum.replaces + m.replaces, sum.local + m.local}
	}
	shipped, others := programsOf(t)
	names := prefixes(t.metrics)
	return [][2]string{
		row("packages of the product; under 100 code lines; median", "%d; %d; %d", len(code), small, percentile(code, 50)),
		row("packages, all", "%d", packages),
		row("Go modules; lines of go.mod; of go.sum", "%d; %d; %d", len(t.modules), sum.modLines, sum.sumLines),
		row("replaces; of these by a folder", "%d; %d", sum.replaces, sum.local),
		row("programs that ship", "%d", len(shipped)),
		row("main packages of the product without an image", "%d %s", len(others), strings.Join(others, ", ")),
		row("images", "%d", countImages(t.images)),
		row("configuration: keys; rows; pages", "%d; %d; %d", t.config.keys, t.config.rows, t.config.pages),
		row("metrics; prefixes (first words)", "%d; %d (%s)", len(t.metrics), len(names), strings.Join(names, ", ")),
	}
}

func row(figure, format string, args ...any) [2]string {
	return [2]string{figure, strings.TrimSpace(fmt.Sprintf(format, args...))}
}

// ratio is 0 of nothing.
func ratio(x, y int) float64 {
	if y == 0 {
		return 0
	}
	return float64(x) / float64(y)
}

func spread(values []int, percentiles ...int) string {
	out := make([]string, len(percentiles))
	for i, p := range percentiles {
		out[i] = fmt.Sprint(percentile(values, p))
	}
	return strings.Join(out, " / ")
}
