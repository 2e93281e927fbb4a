package prose_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/tests/prose"
)

// TestPagesAreWithinTheTargets of docs/contributing/style.md.
func TestPagesAreWithinTheTargets(t *testing.T) {
	pages, err := prose.Pages(filepath.Join("..", "..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range prose.Targets() {
		got := target.Of(pages[target.Kind])
		if target.Least != (got >= target.Bound) && got != target.Bound {
			t.Errorf("%s (%s): %.1f, the bound is %g", target.Name, target.Kind, got, target.Bound)
		}
	}
	if n := prose.Written(pages); n > prose.MostWritten || n < prose.MostWritten/2 {
		t.Errorf("%d words, want at most %d and not much fewer", n, prose.MostWritten)
	}
}

func TestCount(t *testing.T) {
	tests := map[string]struct {
		page string
		want prose.Figures
	}{
		"prose": {
			"# What is not counted\n\nYou run `tell me` on your node. It works; it says so.\n\n- Who reads this wins.\n- What is it?\n",
			prose.Figures{Pages: 1, Total: 26, Words: 18, You: 2, Tell: 1, Clauses: 1, Semicolons: 1, Sentences: 4, Lines: 4, Paragraphs: []int{11, 4, 3}},
		},
		"tables, code and a diagram": {
			"| you | say |\n|---|---|\n| a; b | c |\n\n```\nyou say;\n```\n\n1. See\n\n   ```mermaid\n   flowchart LR\n   ```\n",
			prose.Figures{Pages: 1, Total: 22, Words: 1, Lines: 4, TableLines: 3, Paragraphs: []int{1}, Blocks: 2, Diagrams: 1},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, prose.Count(tt.page)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
