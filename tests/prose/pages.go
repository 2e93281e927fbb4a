package prose

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is a part of the documentation with targets of its own.
type Kind string

// Kinds of pages.
const (
	Guide     Kind = "get started, concepts, tasks, troubleshooting, contributing"
	Concept   Kind = "concepts and tasks"
	Task      Kind = "tasks"
	Reference Kind = "reference and decision records"
	Generated Kind = "generated from the code"
)

// generated begins the second paragraph of a page that a program writes.
const generated = "Written from "

// Pages counts the pages below a folder docs, by kind. A task counts as a concept and as a
// guide too.
func Pages(docs string) (map[Kind]Figures, error) {
	out := map[Kind]Figures{}
	err := filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("counting the words of the pages: %w", err)
		}
		name, err := filepath.Rel(docs, path)
		if err != nil {
			return fmt.Errorf("counting the words of the pages: %w", err)
		}
		for _, kind := range kindsOf(filepath.ToSlash(name), string(text)) {
			f := out[kind]
			f.Add(Count(string(text)))
			out[kind] = f
		}
		return nil
	})
	return out, err
}

func kindsOf(name, text string) []Kind {
	folder, _, _ := strings.Cut(name, "/")
	switch {
	case strings.Contains(text, "\n"+generated):
		return []Kind{Generated}
	case folder == "tasks":
		return []Kind{Guide, Concept, Task}
	case folder == "concepts":
		return []Kind{Guide, Concept}
	case folder == "reference", strings.HasPrefix(name, "contributing/adr/"):
		return []Kind{Reference}
	}
	return []Kind{Guide}
}

// Target is a figure that the documentation keeps within a bound.
type Target struct {
	Name  string
	Kind  Kind
	Of    func(Figures) float64
	Bound float64
	Least bool // the bound is a minimum
}

// Targets are the bounds of docs/contributing/style.md.
func Targets() []Target {
	return []Target{
		{"you, your per 1,000 words", Guide, func(f Figures) float64 { return f.PerThousand(f.You) }, 8, true},
		{"tell, say per 1,000 words", Guide, func(f Figures) float64 { return f.PerThousand(f.Tell) }, 1, false},
		{"clauses without a noun per 1,000 words", Guide, func(f Figures) float64 { return f.PerThousand(f.Clauses) }, 0.3, false},
		{"semicolons per 100 sentences", Guide, Figures.SemicolonsPerHundred, 3, false},
		{"percent of lines in tables", Concept, Figures.TableShare, 15, false},
		{"words of a paragraph, 90th percentile", Guide, func(f Figures) float64 { return float64(f.ParagraphP90()) }, 80, false},
		{"words for each block of code", Task, func(f Figures) float64 { return float64(f.WordsPerBlock()) }, 250, false},
		{"diagrams", Guide, func(f Figures) float64 { return float64(f.Diagrams) }, 6, true},
	}
}

// Written is the number of words of all pages that people write.
func Written(pages map[Kind]Figures) int { return pages[Guide].Total + pages[Reference].Total }

// MostWritten bounds Written.
const MostWritten = 96_500

// Table is the targets, the figures and the number of words, as Markdown.
func Table(pages map[Kind]Figures) string {
	var b strings.Builder
	b.WriteString("| figure | pages | target | now |\n|---|---|---|---|\n")
	for _, t := range Targets() {
		sign := "at most"
		if t.Least {
			sign = "at least"
		}
		fmt.Fprintf(&b, "| %s | %s | %s %g | %.1f |\n", t.Name, t.Kind, sign, t.Bound, t.Of(pages[t.Kind]))
	}
	fmt.Fprintf(&b, "| words, tables and code included | all that people write | at most %d | %d |\n", MostWritten, Written(pages))
	for _, kind := range slices.Sorted(maps.Keys(pages)) {
		fmt.Fprintf(&b, "| words, tables and code included | %s (%d pages) | - | %d |\n", kind, pages[kind].Pages, pages[kind].Total)
	}
	return b.String()
}
