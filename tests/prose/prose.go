// Package prose counts how the pages of the documentation are written: the address of the
// reader, the words for speaking, clauses without a noun, semicolons, tables, the length of
// paragraphs, examples and diagrams. The text that counts is that outside of tables, headings
// and code.
package prose

import (
	"regexp"
	"slices"
	"strings"
)

// Figures are the counts of one page, or of several that were added.
type Figures struct {
	Pages      int
	Total      int   // words of everything, tables and code included
	Words      int   // words of the prose
	You        int   // "you", "your"
	Tell       int   // forms of tell and say
	Clauses    int   // clauses as a subject or without antecedent: "Who comes from ..."
	Semicolons int   // in the prose
	Sentences  int   // in the prose
	Lines      int   // outside of code, without empty ones
	TableLines int   // of these, rows of tables
	Paragraphs []int // words of each paragraph and list entry
	Blocks     int   // of code
	Diagrams   int   // of these, mermaid diagrams
}

var (
	frontMatter = regexp.MustCompile(`(?s)\A---\n.*?\n---\n`)
	block       = regexp.MustCompile("(?ms)^ *```(\\w*).*?^ *```[^\n]*$")
	inline      = regexp.MustCompile("`[^`\n]*`")
	target      = regexp.MustCompile(`\]\([^)]*\)`)
	marker      = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.)\s+`)
	paragraph   = regexp.MustCompile(`\n\s*\n`)
	word        = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)
	you         = regexp.MustCompile(`(?i)\b(?:you|your|yours)\b`)
	tell        = regexp.MustCompile(`(?i)\b(?:tell|tells|told|telling|say|says|said|saying)\b`)
	clause      = regexp.MustCompile(`(?im)(?:^|[.;:,(]\s+|^\s*[-*] )(?:who|what|whoever|whatever|whose) [a-z]+[^.?!\n]*[.!;\n]`)
	sentence    = regexp.MustCompile(`[.!?](?:\s|$)`)
)

// Count counts one page of Markdown.
func Count(page string) Figures {
	f := Figures{Pages: 1, Total: len(strings.Fields(page))}
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		f.Blocks++
		if m[1] == "mermaid" {
			f.Diagrams++
		}
	}
	var kept strings.Builder
	for line := range strings.SplitSeq(block.ReplaceAllString(frontMatter.ReplaceAllString(page, ""), ""), "\n") {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, "|"):
			f.TableLines++
			f.Lines++
		case text != "":
			f.Lines++
			fallthrough
		default:
			if !strings.HasPrefix(text, "#") {
				kept.WriteString(line + "\n")
			}
		}
	}
	text := target.ReplaceAllString(inline.ReplaceAllString(kept.String(), "CODE"), "]")
	text = marker.ReplaceAllString(text, "\n\n")
	f.Words = len(word.FindAllString(text, -1))
	f.You = len(you.FindAllString(text, -1))
	f.Tell = len(tell.FindAllString(text, -1))
	f.Clauses = len(clause.FindAllString(text, -1))
	f.Semicolons = strings.Count(text, ";")
	f.Sentences = len(sentence.FindAllString(text, -1))
	for _, p := range paragraph.Split(text, -1) {
		if n := len(strings.Fields(p)); n > 0 {
			f.Paragraphs = append(f.Paragraphs, n)
		}
	}
	return f
}

// Add adds the counts of other pages.
func (f *Figures) Add(o Figures) {
	f.Pages += o.Pages
	f.Total += o.Total
	f.Words += o.Words
	f.You += o.You
	f.Tell += o.Tell
	f.Clauses += o.Clauses
	f.Semicolons += o.Semicolons
	f.Sentences += o.Sentences
	f.Lines += o.Lines
	f.TableLines += o.TableLines
	f.Paragraphs = append(f.Paragraphs, o.Paragraphs...)
	f.Blocks += o.Blocks
	f.Diagrams += o.Diagrams
}

// PerThousand is a count per 1,000 words of prose.
func (f Figures) PerThousand(n int) float64 { return 1000 * float64(n) / float64(max(f.Words, 1)) }

// SemicolonsPerHundred is the number of semicolons per 100 sentences.
func (f Figures) SemicolonsPerHundred() float64 {
	return 100 * float64(f.Semicolons) / float64(max(f.Sentences, 1))
}

// TableShare is the percentage of lines that are rows of tables.
func (f Figures) TableShare() float64 { return 100 * float64(f.TableLines) / float64(max(f.Lines, 1)) }

// WordsPerBlock is the number of words of prose for each block of code.
func (f Figures) WordsPerBlock() int { return f.Words / max(f.Blocks, 1) }

// ParagraphP90 is the length in words that nine of ten paragraphs do not exceed.
func (f Figures) ParagraphP90() int {
	if len(f.Paragraphs) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(f.Paragraphs))
	return sorted[len(sorted)*9/10]
}
